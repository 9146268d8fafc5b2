"""Where events come from: a run that may be too fast, a trace, a file that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanovllm.trace.jsonl import TraceWriter, read_trace, write_trace
from tests.trace.runs import preempting_run
from tests.viz.web.traces import as_trace
from viz.live.source import GrowingTraceSource, RunSource, TraceSource

EVENTS = preempting_run()


def test_a_run_hands_over_what_it_emits() -> None:
    source = RunSource()
    assert (source.is_growing, source.take(10)) == (True, [])
    for event in EVENTS[:5]:
        source.emit(event)
    assert source.take(3) == EVENTS[:3]
    source.finish()
    assert source.is_growing, "two are left"
    assert source.take(10) == EVENTS[3:5]
    assert not source.is_growing
    assert source.problem is None


def test_of_a_run_that_is_too_fast_the_first_events_are_kept() -> None:
    source = RunSource(most_pending=10)
    for event in EVENTS[:14]:
        source.emit(event)
    taken = source.take(4)
    assert source.problem == "the run was too fast to be followed from here on"
    for event in EVENTS[14:]:
        source.emit(event)
    assert source.newest_step == 14, "but how far it has come is known"
    assert taken + source.take(100) == EVENTS[:14]
    assert source.is_growing
    source.finish()
    assert not source.is_growing


def test_what_nobody_takes_does_not_pile_up() -> None:
    source = RunSource()
    for event in EVENTS:
        source.emit(event)
    source.discard()
    source.emit(EVENTS[0])
    assert source.take(10) == []


def test_a_trace_is_handed_out_once() -> None:
    source = TraceSource(as_trace(EVENTS[:-4]))
    assert not source.is_running
    assert source.problem is not None
    assert source.problem.startswith("the trace is incomplete: run.jsonl: ")
    assert source.take(7) + source.take(10_000) == EVENTS[:-4]
    assert not source.is_growing


def test_a_file_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrowingTraceSource, "_LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr(GrowingTraceSource, "_PAUSE_PER_READING", 0)
    path = tmp_path / "run.jsonl"
    with TraceWriter(path) as writer:
        middle = next(i for i, event in enumerate(EVENTS) if i > 20 and type(event).__name__ == "StepFinished") + 1
        for event in EVENTS[:middle]:
            writer.emit(event)
        source = GrowingTraceSource(path)
        assert source.take(10_000) == EVENTS[:middle]
        assert (source.take(1), source.is_growing) == ([], True)
        for event in EVENTS[middle:]:
            writer.emit(event)
    assert source.take(10_000) == EVENTS[middle:]
    path.unlink()
    assert source.take(1) == []
    assert source.problem is not None
    assert not source.is_growing


def test_a_line_that_is_half_written_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrowingTraceSource, "_LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr(GrowingTraceSource, "_PAUSE_PER_READING", 0)
    whole, path = tmp_path / "whole.jsonl", tmp_path / "run.jsonl"
    write_trace(EVENTS, whole)
    content = whole.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    source = GrowingTraceSource(path)
    first = source.take(10_000)
    path.write_bytes(content)
    assert first + source.take(10_000) == read_trace(whole).events
