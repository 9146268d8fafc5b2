"""Where the time of steps went: the figures, the tracks in Perfetto, the table, the listing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nanovllm.cli.metrics_table import print_metrics
from nanovllm.config import Config
from nanovllm.trace.events import (
    AnyEvent,
    BlocksAllocated,
    ChunkScheduled,
    DecodeScheduled,
    RequestAdded,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.metrics.latency import summarize
from nanovllm.trace.metrics.step_times import PhaseTimes, StepTimesCollector
from nanovllm.trace.perfetto import to_chrome_trace
from nanovllm.trace.text import to_text
from sim import simulate
from tests.sim.runs import requests
from tests.trace.runs import header, preempting_run

# One step after the other, then one ahead: in step 2, most of the program's work passed during step 1.
RUN: list[AnyEvent] = [
    TraceStarted(2, "hand", "prefill_first", "", header(), {"device": "a card", "cuda_graphs": True}),
    RequestAdded("a", 0.0, 0.0, 4, 4),
    StepStarted(0, 0.0, 1, 0, 8),
    BlocksAllocated("a", [0, 1]),
    ChunkScheduled("a", 0, 4, 0),
    TokensAppended(["a"], [7]),
    StepFinished(0, 3.0, "prefill", 4, host=1.0, device=2.0),
    StepStarted(1, 3.0, 0, 1, 6),
    DecodeScheduled(["a"]),
    TokensAppended(["a"], [7]),
    StepFinished(1, 8.0, "decode", 1, host=1.0, device=4.0),
    StepStarted(2, 8.0, 0, 1, 6),
    DecodeScheduled(["a"]),
    TokensAppended(["a"], [7]),
    StepFinished(2, 12.5, "decode", 1, host=3.0, device=4.0),
    StepStarted(3, 12.5, 0, 1, 6),
    DecodeScheduled(["a"]),
    TokensAppended(["a"], [7]),
    StepFinished(3, 13.0, "decode", 1),
]


def test_the_figures_of_each_phase() -> None:
    times = compute_metrics(RUN).step_times
    assert list(times) == ["prefill", "decode"]
    decode = times["decode"]
    assert decode == PhaseTimes(
        num_steps=2,
        duration_s=summarize([5.0, 4.5]),
        host_s=summarize([1.0, 3.0]),
        device_s=summarize([4.0, 4.0]),
        waited_s=1.5,
    )
    assert decode.waited_share == pytest.approx(1.5 / 9.5)
    assert compute_metrics(RUN).to_dict()["step_times"]["prefill"]["waited_s"] == 1.0


def test_a_backend_that_tells_nothing_has_no_figures() -> None:
    assert compute_metrics(preempting_run()).step_times == {}


def test_simulated_steps_tell_their_parts() -> None:
    """One after the other, the card waits for all of the program's work; one ahead, a slow card for none of it."""
    config, load = Config(num_kvcache_blocks=9), requests((9, 30, 0))
    behind, ahead = (
        simulate(replace(config, lookahead=lookahead), load, gpu="l4", model="qwen3-8b").metrics.step_times["decode"]
        for lookahead in (False, True)
    )
    assert behind.waited_s == pytest.approx(behind.host_s.mean * 29)
    assert ahead.waited_s == 0.0
    assert ahead.device_s == behind.device_s


def test_what_rounding_leaves_over_is_no_waiting() -> None:
    """A step lasts from one time of a clock to the next, which is not to the bit what the device took."""
    steps = StepTimesCollector()
    steps.take("decode", duration_s=0.1 + 0.2, host_s=0.01, device_s=0.3)
    steps.take("mixed", duration_s=0.3001, host_s=0.01, device_s=0.3)
    times = steps.result()
    assert times["decode"].duration_s.mean > times["decode"].device_s.mean
    assert times["decode"].waited_s == times["decode"].waited_share == 0.0
    assert times["mixed"].waited_s == pytest.approx(0.0001)


def slices_of(trace: dict[str, Any], name: str) -> list[tuple[str, float, float]]:
    [track] = [
        entry["tid"]
        for entry in trace["traceEvents"]
        if entry["ph"] == "M" and entry["pid"] == 1 and entry["args"]["name"] == name and entry["name"] == "thread_name"
    ]
    return [
        (entry["name"], entry["ts"] / 1e6, (entry["ts"] + entry["dur"]) / 1e6)
        for entry in trace["traceEvents"]
        if entry["ph"] == "X" and entry["pid"] == 1 and entry["tid"] == track
    ]


def test_perfetto_has_a_track_for_each_part() -> None:
    trace = to_chrome_trace(RUN)
    assert slices_of(trace, "device") == [("prefill", 1.0, 3.0), ("decode", 4.0, 8.0), ("decode", 8.5, 12.5)]
    assert slices_of(trace, "host") == [("prefill", 0.0, 1.0), ("decode", 3.0, 4.0), ("decode", 5.5, 8.5)]
    tracks = [entry["args"]["name"] for entry in to_chrome_trace(preempting_run())["traceEvents"] if entry["ph"] == "M"]
    assert "device" not in tracks


def test_parts_of_two_steps_never_overlap() -> None:
    """A step's end is told a little late or early: what is drawn gives way."""
    late = [*RUN[:10], StepFinished(1, 8.0, "decode", 1, host=9.0, device=6.0)]
    trace = to_chrome_trace(late)
    assert slices_of(trace, "device")[1] == ("decode", 3.0, 8.0)
    assert slices_of(trace, "host")[1] == ("decode", 1.0, 3.0)


def test_the_table_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics(compute_metrics(RUN))
    table = capsys.readouterr().out.rpartition("time of a step")[2]
    assert [line.split() for line in table.splitlines() if "host" in line] == [
        ["│", "│", "host", "│", "1.00", "s", "│", "1.00", "s", "│", "1.00", "s", "│", "│"],
        ["│", "│", "host", "│", "2.00", "s", "│", "2.00", "s", "│", "2.98", "s", "│", "│"],
    ]
    assert "750 ms a step, 15.8%" in table
    print_metrics(compute_metrics(preempting_run()))
    assert "time of a step" not in capsys.readouterr().out


def test_the_listing_tells_the_facts() -> None:
    assert list(to_text(RUN))[1] == "on device a card, cuda graphs True"
    assert not any(line.startswith("on ") for line in to_text(preempting_run()))
