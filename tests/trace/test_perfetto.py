"""The export for ui.perfetto.dev: what it must be for the viewer to load it, and what it shows."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from nanovllm.errors import TraceError
from nanovllm.trace.events import (
    AnyEvent,
    BlocksAllocated,
    BlocksFreed,
    ChunkScheduled,
    RequestAdded,
    RequestFinished,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.perfetto import to_chrome_trace, write_chrome_trace
from tests.trace.runs import Scenario, header, preempting_run, scenarios


def nanoseconds(time_us: float) -> int:
    return round(time_us * 1000)


def check_structure(trace: dict[str, Any]) -> None:
    entries = [entry for entry in trace["traceEvents"] if entry["ph"] != "M"]
    times = [entry["ts"] for entry in entries]
    assert times == sorted(times)
    assert all(time >= 0 for time in times)
    slices = defaultdict(list)
    for entry in entries:
        if entry["ph"] == "X":
            start = nanoseconds(entry["ts"])
            slices[entry["pid"], entry["tid"]].append((start, start + nanoseconds(entry["dur"])))
    for track in slices.values():
        check_nesting(track)
    ends = defaultdict(list)
    for entry in entries:
        if entry["ph"] in "sf":
            ends[entry["id"]].append(entry)
            time = nanoseconds(entry["ts"])
            assert any(start <= time <= end for start, end in slices[entry["pid"], entry["tid"]])
    assert all([end["ph"] for end in pair] == ["s", "f"] for pair in ends.values())
    named = {(entry["pid"], entry["tid"]) for entry in trace["traceEvents"] if entry["name"] == "thread_name"}
    assert named == set(slices) | {(1, 0)}


def check_nesting(track: list[tuple[int, int]]) -> None:
    """Slices lie one after the other or one within the other."""
    around: list[int] = []
    for start, end in track:
        assert start <= end
        while around and around[-1] <= start:
            around.pop()
        assert not around or end <= around[-1]
        around.append(end)


@given(scenarios())
@settings(max_examples=100)
def test_slices_nest_and_arrows_have_both_ends(scenario: Scenario) -> None:
    events = scenario.run()
    check_structure(to_chrome_trace(events))
    check_structure(to_chrome_trace(events[: len(events) // 2]))


def slices_of(trace: dict[str, Any], group: int) -> list[tuple[int, str, float, float]]:
    return [
        (entry["tid"], entry["name"], entry["ts"], entry["ts"] + entry["dur"])
        for entry in trace["traceEvents"]
        if entry["ph"] == "X" and entry["pid"] == group
    ]


def test_a_preempted_request_shows_its_phases_and_an_arrow() -> None:
    trace = to_chrome_trace(preempting_run())  # a millisecond a token
    slices = slices_of(trace, 2)
    assert {entry[:2] for entry in slices if entry[1].startswith("request")} == {(0, "request 0"), (1, "request 1")}
    assert [entry[1:] for entry in slices if entry[0] == 1] == [
        ("request 1", 0.0, 33_000.0),
        ("prefill", 0.0, 9_000.0),
        ("decode", 9_000.0, 15_000.0),
        ("preempted", 15_000.0, 20_000.0),
        ("recompute", 20_000.0, 28_000.0),
        ("decode", 28_000.0, 33_000.0),
    ]
    arrows = [(entry["ph"], entry["ts"]) for entry in trace["traceEvents"] if entry["ph"] in "sf"]
    assert arrows == [("s", 15_000.0), ("f", 20_000.0)]
    steps = slices_of(trace, 1)
    assert steps[:2] == [(0, "prefill", 0.0, 9_000.0), (0, "decode", 9_000.0, 11_000.0)]
    assert len(steps) == 15


CHUNKED: list[AnyEvent] = [
    TraceStarted(1, "hand", "prefill_first", "", header()),
    RequestAdded("a", 2.0, 1.0, 6, 1),
    StepStarted(0, 3.0, 1, 0, 8),
    BlocksAllocated("a", [0, 1]),
    ChunkScheduled("a", 0, 4, 2),
    StepFinished(0, 4.0, "prefill", 4),
    StepStarted(1, 5.0, 1, 0, 6),
    ChunkScheduled("a", 4, 2, 0),
    TokensAppended(["a"], [1]),
    RequestFinished("a", 5.5, "length"),
    BlocksFreed("a", [1, 0]),
    StepFinished(1, 6.0, "prefill", 2),
    RequestAdded("b", 6.0, 6.0, 1, 1),
]


def test_waiting_is_shown_before_and_between_chunks_and_lanes_are_reused() -> None:
    assert slices_of(to_chrome_trace(CHUNKED), 2) == [
        (0, "request a", 1e6, 6e6),
        (0, "waiting", 1e6, 3e6),
        (0, "prefill", 3e6, 4e6),
        (0, "waiting", 4e6, 5e6),
        (0, "prefill", 5e6, 6e6),
        (0, "request b", 6e6, 6e6),
    ]


def test_counters_tell_changes_as_a_step_computes_and_between_steps() -> None:
    counters = defaultdict(list)
    for entry in to_chrome_trace(CHUNKED)["traceEvents"]:
        if entry["ph"] == "C":
            counters[entry["name"]].append((entry["ts"] / 1e6, entry["args"][entry["name"]]))
    assert counters == {
        "waiting": [(3.0, 1), (5.0, 0), (6.0, 1)],
        "running": [(3.0, 0), (5.0, 1), (6.0, 0)],
        "free blocks": [(3.0, 6), (6.0, 8)],
        "cached blocks": [(3.0, 0)],
        "tokens": [(3.0, 4), (4.0, 0), (5.0, 2), (6.0, 0)],
    }


def test_unfinished_requests_go_to_the_end() -> None:
    trace = to_chrome_trace(CHUNKED[:9])
    (whole,) = [entry for entry in trace["traceEvents"] if entry["name"] == "request a"]
    assert (whole["dur"], whole["args"]["end"], whole["args"]["output_tokens"]) == (4e6, "unfinished", 1)
    check_structure(to_chrome_trace(CHUNKED[:11]))
    check_structure(to_chrome_trace(CHUNKED[:1]))
    assert to_chrome_trace([])["otherData"] == {}


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_the_file_is_the_json_of_it(tmp_path: Path, name: str) -> None:
    write_chrome_trace(CHUNKED, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert json.loads(gzip.decompress(data) if name.endswith("gz") else data) == to_chrome_trace(CHUNKED)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        write_chrome_trace(CHUNKED, tmp_path / "none" / "run.json")
    with pytest.raises(TraceError, match=r"^run\.jsonl:2: a second trace_started"):
        to_chrome_trace(CHUNKED[:1] * 2, "run.jsonl")
