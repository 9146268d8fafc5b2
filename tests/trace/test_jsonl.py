"""Traces in files: what is written is read back, whatever happened to the file in between."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from nanovllm.config import Config
from nanovllm.errors import TraceError
from nanovllm.trace.events import SCHEMA_VERSION, AnyEvent, StepFinished, StepStarted, TraceStarted
from nanovllm.trace.jsonl import TraceWriter, iter_events, read_trace, write_trace
from tests.trace.runs import Scenario, header, preempting_run, request, scenarios

HEADER = TraceStarted(SCHEMA_VERSION, "hash", "prefill_first", "", header())
CONFIG = Config(num_kvcache_blocks=8, kvcache_block_size=4, max_num_batched_tokens=64, max_num_seqs=8, lookahead=False)
HEADER_LINE = msgspec.json.encode(HEADER) + b"\n"
SCHEMA = f'"schema":{SCHEMA_VERSION}'.encode()
ADDED = b'{"type":"request_added","request":"a","time":0.0,"arrival":0.0,"prompt_tokens":4,"max_tokens":2}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    events = preempting_run()
    write_trace(events, tmp_path / name)
    trace = read_trace(tmp_path / name)
    assert trace.events == events == list(iter_events(tmp_path / name))
    assert trace.header == events[0]
    assert (trace.complete, trace.problem) == (True, None)


def test_a_trace_of_the_first_schema_is_read(path: Path) -> None:
    path.write_bytes(
        HEADER_LINE.replace(SCHEMA, b'"schema":1')
        + b'{"type":"step_started","step":0,"time":0.0,"waiting":0,"running":0,"free_blocks":8}\n'
        + b'{"type":"step_finished","step":0,"time":1.5,"phase":"decode","tokens":0}\n'
    )
    started, *steps = read_trace(path).events
    assert started == TraceStarted(1, "hash", "prefill_first", "", header())
    assert steps == [StepStarted(0, 0.0, 0, 0, 8), StepFinished(0, 1.5, "decode", 0)]


def test_what_is_not_known_is_left_out() -> None:
    encode = msgspec.json.encode
    assert b"facts" not in HEADER_LINE
    assert encode(StepFinished(0, 1.5, "decode", 2)) == (
        b'{"type":"step_finished","step":0,"time":1.5,"phase":"decode","tokens":2}'
    )
    assert encode(StepFinished(0, 1.5, "decode", 2, 0.5, 0.0)).endswith(b'"tokens":2,"host":0.5,"device":0.0}')


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_the_same_events_make_the_same_file(tmp_path: Path, name: str) -> None:
    contents = []
    for path in (tmp_path / name, tmp_path / f"another-{name}"):
        write_trace(preempting_run(), path)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


@given(scenarios())
@settings(max_examples=50)
def test_reading_and_writing_again_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, scenario: Scenario
) -> None:
    first, second = (tmp_path_factory.getbasetemp() / name for name in ("first.jsonl", "second.jsonl"))
    write_trace(scenario.run(), first)
    write_trace(iter_events(first), second)
    assert first.read_bytes() == second.read_bytes()


def test_an_event_is_a_line_with_its_type_first(path: Path) -> None:
    write_trace([HEADER, StepStarted(0, 0.5, 1, 0, 8)], path)
    lines = path.read_text().splitlines()
    assert lines[1] == '{"type":"step_started","step":0,"time":0.5,"waiting":1,"running":0,"free_blocks":8}'


# ---- cut files -----------------------------------------------------------------------------------------------


def test_a_file_cut_at_any_byte_is_readable_up_to_its_last_whole_line(path: Path) -> None:
    events = Scenario(CONFIG, [request("a", range(5), 2)]).run()
    write_trace(events, path)
    content = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content)):
        path.write_bytes(content[:size])
        # The line feed itself is not missed: an event without it is whole.
        num_whole = sum(end - 1 <= size for end in ends)
        if num_whole == 0:
            with pytest.raises(TraceError, match="is empty" if size == 0 else "was cut within its header"):
                read_trace(path)
            continue
        trace = read_trace(path)
        assert trace.events == events[:num_whole]
        is_whole = size == len(content) - 1
        assert trace.complete is is_whole
        if not is_whole:
            is_within_line = size not in ends and size + 1 not in ends
            assert trace.problem is not None
            assert trace.problem.startswith(f"{path}:{num_whole + is_within_line}: ")


def test_a_compressed_file_cut_at_any_byte_is_readable(tmp_path: Path) -> None:
    events = preempting_run()[:30]  # not to the end of the run
    path = tmp_path / "run.jsonl.gz"
    write_trace(events, path)
    content = path.read_bytes()
    num_read = []
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            trace = read_trace(path)
        except TraceError:
            num_read.append(0)
            continue
        assert trace.events == events[: len(trace.events)]
        assert not trace.complete
        assert trace.problem is not None
        num_read.append(len(trace.events))
    assert all(before <= after for before, after in pairwise(num_read))
    assert num_read[len(content) // 2] > 0
    assert num_read[-1] == len(events)


@pytest.mark.parametrize(
    ("num_events", "problem"),
    [
        (1, "1: the trace holds nothing but its header"),
        (3, "3: the trace ends with unfinished requests: 0, 1"),
        (6, "6: the trace ends within step 0"),
    ],
)
def test_what_is_missing_at_the_end_is_said(path: Path, num_events: int, problem: str) -> None:
    write_trace(preempting_run()[:num_events], path)
    trace = read_trace(path)
    assert not trace.complete
    assert trace.problem == f"{path}:{problem}"


def test_a_line_that_was_cut_is_not_blamed_for_what_it_says(path: Path) -> None:
    path.write_bytes(HEADER_LINE + b'{"type":"admitted","request":{}')
    trace = read_trace(path)
    assert trace.events == [HEADER]
    assert trace.problem == f"{path}:2: the file was cut within this line"


def test_an_abort_between_steps_is_whole_only_with_its_blocks_freed(path: Path) -> None:
    events = Scenario(CONFIG, [request("a", range(4), 9)], aborts_before_step={2: ["a"]}).run()
    write_trace(events[:-1], path)
    assert read_trace(path).problem == f"{path}:{len(events) - 1}: the trace ends before all blocks are freed: of a"
    write_trace(events, path)
    assert read_trace(path).complete


KILLED = """
import os, signal, sys
from nanovllm.trace.jsonl import TraceWriter
from tests.trace.runs import preempting_run
writer = TraceWriter(sys.argv[1])
for event in preempting_run()[:{num_events}]:
    writer.emit(event)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_all_finished_steps(path: Path) -> None:
    events = preempting_run()
    num_events = next(i for i, e in enumerate(events) if isinstance(e, StepStarted) and e.step == 5) + 1
    script = KILLED.format(num_events=num_events)
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    trace = read_trace(path)
    assert trace.events == events[: num_events - 1]
    assert not trace.complete


def interrupted(events: list[AnyEvent]) -> Iterator[AnyEvent]:
    yield from events
    raise KeyboardInterrupt


def test_an_exception_leaves_every_event(path: Path) -> None:
    events = preempting_run()[:20]
    with pytest.raises(KeyboardInterrupt):
        write_trace(interrupted(events), path)
    assert read_trace(path).events == events


# ---- files that are no traces --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": is empty: a trace begins with a line of type trace_started"),
        (b"step,time\n", ":1: is not JSON .*: a trace begins with a line of type trace_started"),
        (b"[1, 2]\n", ":1: is no event: a trace begins with a line of type trace_started"),
        (b'{"id": 3}\n', ":1: is no event: a trace begins with"),
        (b'{"type":"log"}\n', ":1: 'log' is no type of event: a trace begins with"),
        (ADDED, ":1: the first event is request_added: a trace begins with a line of type trace_started"),
        (
            HEADER_LINE.replace(SCHEMA, b'"schema":7,"more":[]'),
            f":1: the trace has schema 7, this version reads schemas up to {SCHEMA_VERSION}",
        ),
        (HEADER_LINE.replace(SCHEMA, b'"schema":0'), f":1: there is no schema 0: .* 1 to {SCHEMA_VERSION}"),
        (HEADER_LINE.replace(SCHEMA, b'"schema":"1"'), ":1: is no trace_started: Expected `int`, got `str`"),
        (HEADER_LINE + HEADER_LINE, ":2: a second trace_started: a file holds one trace"),
        (HEADER_LINE + ADDED + b"\n" + ADDED, ":3: is not JSON .*: each line is an event"),
        (HEADER_LINE + ADDED[:30] + b"\n" + ADDED, ":2: is not JSON"),
        (HEADER_LINE + b"null\n", ":2: is no event: each line is an object with a type"),
        (HEADER_LINE + b'{"type":"hit"}\n', ":2: 'hit' is no type of event: the types are admitted, block_evicted, .*"),
        (HEADER_LINE + b'{"type":"hit"}', ":2: 'hit' is no type of event"),
        (
            HEADER_LINE + ADDED.replace(b'"max_tokens":2', b'"max_tokens":2.5'),
            r":2: is no request_added: Expected `int`, got `float` - at `\$.max_tokens` \(its fields are request, time",
        ),
        (
            HEADER_LINE + ADDED.replace(b'"max_tokens":2', b'"max_tokens":2,"colour":1'),
            ":2: is no request_added: Object contains unknown field `colour`",
        ),
        (HEADER_LINE + ADDED.replace(b',"max_tokens":2', b""), ":2: .* missing required field `max_tokens`"),
        (HEADER_LINE + b"\xff\xfe\n" + ADDED, ":2: is not JSON"),
        (HEADER_LINE + b'{"type":"admitted","request":{},\n', ":2: is not JSON"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_line(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(TraceError, match=message):
        list(iter_events(path))


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"run\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "run.jsonl")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match=r"none/run\.jsonl: cannot be written: No such file or directory"):
        TraceWriter(tmp_path / "none" / "run.jsonl")
    (tmp_path / "run.jsonl.gz").write_bytes(HEADER_LINE)
    with pytest.raises(TraceError, match=r"run\.jsonl\.gz:1: is not readable as gzip"):
        read_trace(tmp_path / "run.jsonl.gz")
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(HEADER_LINE * 50)[:14] + b"garbage" * 9)
    with pytest.raises(TraceError, match=r"bad\.jsonl\.gz:1: is not readable as gzip"):
        read_trace(tmp_path / "bad.jsonl.gz")
