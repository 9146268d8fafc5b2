"""The compact form: whatever was written is read back, of whole files and of cut ones; and it is small."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent, BlockEvicted, StepFinished, TokensAppended
from nanovllm.trace.files.compact import files
from nanovllm.trace.files.compact.encoding import Encoder
from nanovllm.trace.files.compact.layout import FORMS, Form
from nanovllm.trace.files.compact.parts import PartDecoder, PartEncoder
from nanovllm.trace.jsonl import TraceWriter, iter_events, read_trace, write_trace
from tests.trace.runs import Scenario, preempting_run, scenarios
from tests.trace.test_jsonl import HEADER

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
    for size in (1, 7, 30, len(events)):
        path = tmp_path / f"{size}.nvtrace"
        with TraceWriter(path) as writer:
            for start in range(0, len(events), size):
                writer.emit_all(events[start : start + size])
        assert list(iter_events(path)) == events
        contents.append(path.read_bytes())
    write_trace(events, tmp_path / "whole.nvtrace")
    assert set(contents) == {(tmp_path / "whole.nvtrace").read_bytes()}


def test_a_step_without_end_is_parted_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_EVENTS", 5)
    events = [HEADER, *(BlockEvicted(number, "") for number in range(50))]
    write_trace(events, path)
    assert list(iter_events(path)) == events
    path.write_bytes(path.read_bytes()[:-1])
    assert len(read_trace(path).events) == 1 + 2 * 20


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
