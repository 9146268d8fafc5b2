"""The compact form: whatever was written is read back, of whole files and of cut ones; and it is small."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import TraceError
from nanovllm.trace.compact import files, parts
from nanovllm.trace.compact.columns import WORDS, pack_ints
from nanovllm.trace.compact.encoding import Encoder
from nanovllm.trace.compact.layout import FORMS, Form
from nanovllm.trace.compact.parts import PartDecoder, PartEncoder
from nanovllm.trace.events import AnyEvent, BlockEvicted, StepFinished, TokensAppended
from nanovllm.trace.jsonl import TraceWriter, iter_events, read_trace, write_trace
from tests.trace.runs import Scenario, preempting_run, scenarios
from tests.trace.test_jsonl import HEADER, HEADER_LINE, SCHEMA

FIRST_LINE = b"nvtrace 1\n"

numbers = st.one_of(st.integers(-3, 40), st.integers(-(2**63), 2**63 - 1))
times = st.floats(allow_nan=False, allow_infinity=False)
names = st.one_of(st.sampled_from(["a", "b", 0, 1]), st.text(max_size=3), st.integers(0, 2**63 - 1))
hashes = st.one_of(st.integers(0, 9).map("{:016x}".format), st.text(max_size=20))
FIELDS: dict[object, st.SearchStrategy[object]] = {
    "int": numbers,
    "float": times,
    "float | None": st.none() | times,
    "str": st.sampled_from(["length", "decode", "no_slot"]) | hashes,
    "RequestId": names,
    "list[int]": st.lists(numbers, max_size=4),
    "list[str]": st.lists(hashes, max_size=4),
    "list[RequestId]": st.lists(names, max_size=4),
}


@st.composite
def any_events(draw: st.DrawFn) -> list[AnyEvent]:
    """Events of all kinds but the header, in any order and with any values: few of them make sense."""
    kinds = draw(st.lists(st.sampled_from([*FORMS]), max_size=20))
    return [kind(*(draw(FIELDS[kind.__annotations__[name]]) for name in kind.__struct_fields__)) for kind in kinds]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.nvtrace"


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_EVENTS", 20)


def encoded(events: list[AnyEvent]) -> bytes:
    """As JSON, which tells -0.0 from 0.0."""
    return msgspec.json.encode(events)


def encode_part(encoder: PartEncoder, events: list[AnyEvent]) -> bytes:
    """The part that holds these events. They come two by two: no event may depend on those that come with it."""
    for start in range(0, len(events), 2):
        encoder.take(events[start : start + 2])
    return encoder.encode()


@given(st.lists(any_events(), max_size=4))
def test_any_events_are_read_back(parts: list[list[AnyEvent]]) -> None:
    encoder, decoder = PartEncoder(), PartDecoder()
    for events in parts:
        assert encoded(list(decoder.decode(encode_part(encoder, events)))) == encoded(events)


@given(scenarios(), st.integers(1, 60))
@settings(max_examples=60)
def test_real_runs_are_read_back_with_the_same_bytes_again(scenario: Scenario, part_events: int) -> None:
    events = scenario.run()[1:]
    parts = [events[start : start + part_events] for start in range(0, len(events), part_events)]
    encoder, again, decoder = PartEncoder(), PartEncoder(), PartDecoder()
    for part in parts:
        data = encode_part(encoder, part)
        back = list(decoder.decode(data))
        assert encoded(back) == encoded(part)
        assert encode_part(again, back) == data


def test_an_interrupt_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(encoder: Encoder, events: list[AnyEvent]) -> None:
        follow(encoder, events[:1])
        raise KeyboardInterrupt

    encoder, events, follow = PartEncoder(), preempting_run()[1:], Encoder.follow
    encoder.take(events[:5])
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "follow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.take(events[5:9])
    encoder.take(events[9:])
    assert list(PartDecoder().decode(encoder.encode())) == events


@pytest.mark.parametrize("number", [2**64, -(2**70), 10**30])
def test_numbers_that_fit_no_column_are_kept(number: int, path: Path) -> None:
    events = [*preempting_run(), BlockEvicted(number, "x"), *preempting_run()[1:]]
    write_trace(events, path)
    assert read_trace(path).events == events


def test_of_a_run_next_to_nothing_is_written_in_full() -> None:
    encoder = Encoder()
    encoder.follow(preempting_run()[1:])
    forms, by_form = encoder.take_forms()
    in_full = {Form(form).name for form in forms if not Form(form).name.endswith("_FORESEEN")}
    never_foreseen = {"REQUEST_ADDED", "CHUNK_SCHEDULED", "REQUEST_FINISHED", "HELD", "BLOCKS_EVICTED_AND_ALLOCATED"}
    # The first step begins when none has ended; the fake backend tells no parts of a step's time; and nobody says which
    # block was the last of the free list in the beginning.
    assert in_full <= never_foreseen | {"STEP_STARTED", "STEP_FINISHED", "BLOCKS_ALLOCATED", "BLOCK_EVICTED"}
    assert len(by_form[Form.STEP_STARTED]) == 1
    assert len(by_form[Form.BLOCKS_ALLOCATED]) < len(by_form[Form.BLOCKS_ALLOCATED_FORESEEN])


# ---- files ---------------------------------------------------------------------------------------------------


def test_a_file_is_a_trace_like_any_other(path: Path) -> None:
    events = preempting_run()
    write_trace(events, path)
    trace = read_trace(path)
    assert trace.events == events == list(iter_events(path))
    assert (trace.header, trace.complete, trace.problem) == (events[0], True, None)
    lines = path.read_bytes().split(b"\n")
    assert lines[0] + b"\n" == FIRST_LINE
    assert msgspec.json.decode(lines[1], type=AnyEvent) == events[0]


@pytest.mark.usefixtures("short_parts")
def test_the_same_events_make_the_same_file_however_they_come(tmp_path: Path) -> None:
    events, contents = preempting_run(), []
    for name, size in (("a", 1), ("b", 7), ("c", len(events))):
        with TraceWriter(tmp_path / f"{name}.nvtrace") as writer:
            for start in range(0, len(events), size):
                writer.emit_all(events[start : start + size])
        contents.append(list(iter_events(tmp_path / f"{name}.nvtrace")))
    assert contents == [events] * 3
    write_trace(events, tmp_path / "d.nvtrace")
    assert (tmp_path / "a.nvtrace").read_bytes() == (tmp_path / "d.nvtrace").read_bytes()


@pytest.mark.usefixtures("short_parts")
def test_a_file_cut_at_any_byte_is_readable_up_to_its_last_whole_part(path: Path) -> None:
    events = preempting_run()
    write_trace(events, path)
    content = path.read_bytes()
    num_header_bytes = len(FIRST_LINE) + len(msgspec.json.encode(events[0])) + 1
    num_read = []
    for size in range(len(content)):
        path.write_bytes(content[:size])
        if size < num_header_bytes:
            with pytest.raises(TraceError, match="is empty" if size == 0 else "was cut within its header"):
                read_trace(path)
            continue
        trace = read_trace(path)
        assert trace.events == events[: len(trace.events)]
        assert not trace.complete
        assert trace.problem is not None
        assert trace.problem.startswith(f"{path}:")
        num_read.append(len(trace.events))
    assert all(before <= after for before, after in pairwise(num_read))
    assert set(num_read) == {1, 21, 43, 65}


@pytest.mark.usefixtures("short_parts")
def test_a_part_is_handed_over_when_its_last_step_is_finished(path: Path) -> None:
    events = preempting_run()
    writer = TraceWriter(path)
    for index, event in enumerate(events):
        writer.emit(event)
        if index < 21:
            continue
        on_disk = read_trace(path).events
        assert on_disk == events[: len(on_disk)]
        assert type(on_disk[-1]) is StepFinished
        assert len(on_disk) > index - 40
    writer.close()


@pytest.mark.usefixtures("short_parts")
def test_damage_is_noticed(path: Path) -> None:
    events = preempting_run()
    write_trace(events, path)
    content = path.read_bytes()
    num_noticed = 0
    for place in range(len(FIRST_LINE), len(content), 7):
        path.write_bytes(content[:place] + bytes((content[place] ^ 0x55,)) + content[place + 1 :])
        try:
            trace = read_trace(path)
        except TraceError:
            num_noticed += 1
        else:  # in the header's text, or in a length: the file looks cut
            assert trace.events[1:] == events[1 : len(trace.events)]
    assert num_noticed > 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: a compact trace begins with 'nvtrace 1'"),
        (HEADER_LINE, "is no compact trace: a compact trace begins with 'nvtrace 1'; other traces are called"),
        (b"\x1f\x8b\x08" + bytes(99), "is no compact trace"),
        (b"nvtrace one\n", "is no compact trace"),
        (b"nvtrace 7\n{}\n", "is a compact trace of form 7, this version reads form 1: read it with a newer version"),
        (FIRST_LINE + HEADER_LINE.replace(SCHEMA, b'"schema":99'), "2: the trace has schema 99, this version reads"),
        (FIRST_LINE + HEADER_LINE.replace(SCHEMA, b'"schema":0'), "2: there is no schema 0"),
        (FIRST_LINE + b'{"type":"held","request":1,"reason":""}\n', "2: the first event is held: a trace begins"),
        (FIRST_LINE + b"[]\n", "2: is no event: a trace begins with"),
        (FIRST_LINE + b"\xff\n", "2: is not JSON"),
        (FIRST_LINE + HEADER_LINE + bytes((3, 0, 0, 0)) + b"abc", "is damaged behind event 1: "),
        (FIRST_LINE + HEADER_LINE + b"\xff\xff\xff\xff" + bytes(99), "is damaged behind event 1: "),
    ],
)
def test_what_is_no_compact_trace_is_refused_with_one_line(content: bytes, message: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def part_of(forms: list[int], words: list[object], columns: list[bytes]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(["columns", words, bytes(forms), columns]))


ADMITTED = [pack_ints([0])]
HELD = [pack_ints([0]), pack_ints([1])]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (part_of([99], [], []), "there is no form 99"),
        (part_of([Form.ADMITTED], ["a"], []), "0 columns, which are not those of its forms"),
        (part_of([Form.ADMITTED], ["a"], [*ADMITTED, b""]), "2 columns, which are not those of its forms"),
        (part_of([Form.ADMITTED], ["a"], [b""]), "a column without its head"),
        (part_of([Form.ADMITTED] * 2, ["a"], ADMITTED), "not a value for each of the 2 events"),
        (part_of([Form.HELD], ["a"], HELD), "a number that is none of its 1 words"),
        (part_of([Form.ADMITTED], ["a"], [pack_ints([-1])]), "a count or an index below 0"),
        (part_of([Form.BLOCKS_ALLOCATED_FORESEEN], ["a"], [*ADMITTED, pack_ints([-5])]), "an index below 0"),
        (part_of([Form.DECODE_SCHEDULED], ["a"], [WORDS.pack([[0, 1]])]), "a number that is none of its 1 words"),
        (part_of([Form.ADMITTED], ["a"], ADMITTED) + b"more", "a part of another length than it tells"),
        (part_of([Form.ADMITTED], ["a"], ADMITTED)[:-1], "a part of another length than it tells"),
        (zlib.compress(bytes(2**16 + 1)), "a part of another length than it tells"),
        (zlib.compress(b""), "Input data was truncated"),
    ],
)
def test_a_part_that_contradicts_itself_is_damaged(
    part: bytes, message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MAX_PART_BYTES", 2**16)
    path.write_bytes(FIRST_LINE + HEADER_LINE + len(part).to_bytes(4, "little") + part)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: is damaged behind event 1: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["run.jsonl", "run.nvtrace.gz", "run"])
def test_a_compact_trace_of_another_name_is_told(name: str, path: Path) -> None:
    write_trace(preempting_run(), path)
    other, data = path.with_name(name), path.read_bytes()
    other.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(TraceError, match=r":1: is a compact trace, whose name ends in \.nvtrace"):
        read_trace(other)


def test_a_file_that_is_missing_is_an_error(path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file or directory"):
        read_trace(path)


def test_a_second_header_is_refused(path: Path) -> None:
    write_trace([HEADER, HEADER, *preempting_run()[1:]], path)
    with pytest.raises(TraceError, match="a second trace_started: a file holds one trace"):
        read_trace(path)


def test_many_events_are_read_in_the_memory_of_a_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_EVENTS", 10)
    steps = [[TokensAppended([0], [step]), StepFinished(step, float(step), "decode", 1)] for step in range(1000)]
    write_trace([HEADER, *(event for step in steps for event in step)], path)
    events = iter_events(path)
    decoded: list[int] = []
    original = PartDecoder.decode
    monkeypatch.setattr(PartDecoder, "decode", lambda self, data: decoded.append(1) or original(self, data))
    for _ in range(100):
        next(events)
    assert len(decoded) <= 10
