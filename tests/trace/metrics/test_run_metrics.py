"""The figures of a run: small runs by hand, and random ones against a slower way to count."""

from __future__ import annotations

import statistics
from collections import defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import TraceError
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    ChunkScheduled,
    DecodeScheduled,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.metrics import compute_metrics, summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.latency import summarize
from nanovllm.trace.metrics.request_metrics import RequestMetrics
from nanovllm.trace.replay import Replay
from tests.trace.runs import Scenario, header, preempting_run, scenarios

# a arrives at 1 and is handed over at 2; tokens at 4, 5 and 8. b gets its only token at 5. c is refused.
RUN: list[AnyEvent] = [
    TraceStarted(1, "hand", "prefill_first", "", header(num_blocks=10)),
    RequestAdded("a", 2.0, 1.0, 6, 3),
    RequestRejected("c", 2.0, "too_long", 0, 0),
    StepStarted(0, 2.0, 1, 0, 10),
    BlocksAllocated("a", [0, 1]),
    ChunkScheduled("a", 0, 6, 0),
    TokensAppended(["a"], [7]),
    StepFinished(0, 4.0, "prefill", 6),
    RequestAdded("b", 4.0, 2.5, 4, 1),
    StepStarted(1, 4.0, 1, 1, 8),
    BlocksAllocated("b", [2]),
    ChunkScheduled("b", 0, 4, 0),
    DecodeScheduled(["a"]),
    TokensAppended(["b", "a"], [7, 7]),
    RequestFinished("b", 4.9, "length"),
    BlocksFreed("b", [2]),
    StepFinished(1, 5.0, "mixed", 5),
    StepStarted(2, 7.0, 0, 1, 8),
    DecodeScheduled(["a"]),
    TokensAppended(["a"], [7]),
    RequestFinished("a", 7.9, "length"),
    BlocksFreed("a", [1, 0]),
    StepFinished(2, 8.0, "decode", 1),
]


def test_latencies_count_from_arrival_to_the_end_of_the_token_s_step() -> None:
    metrics = compute_metrics(RUN)
    b, a = metrics.requests
    assert a == RequestMetrics("a", "completed", 1.0, 6, 3, 0, 0, 0, 1.0, 3.0, 2.0, 7.0, longest_gap_s=3.0)
    assert b == RequestMetrics("b", "completed", 2.5, 4, 1, 0, 0, 0, 1.5, 2.5, None, 2.5)
    assert metrics.time_per_output_token_s == summarize([2.0])
    assert metrics.inter_token_latency_s == summarize([1.0, 3.0])
    assert metrics.time_to_first_token_s == summarize([2.5, 3.0])


def test_throughput_and_steps() -> None:
    metrics = compute_metrics(RUN)
    assert (metrics.duration_s, metrics.busy_s) == (7.0, 4.0)
    assert metrics.output_tokens_per_s == 4 / 7
    assert metrics.total_tokens_per_s == 14 / 7
    assert metrics.requests_per_s == 2 / 7
    assert (metrics.num_requests, metrics.num_completed, metrics.num_rejected) == (2, 2, 1)
    assert (metrics.num_steps, metrics.num_prefill_steps, metrics.num_mixed_steps, metrics.num_decode_steps) == (
        3,
        1,
        1,
        1,
    )
    assert (metrics.computed_tokens, metrics.mean_tokens_per_step) == (12, 4.0)
    assert metrics.mean_kv_use == pytest.approx((2 + 3 + 2) / 30)
    assert metrics.peak_kv_use == 0.3


def test_what_a_cut_trace_leaves_unfinished_stays_out_of_the_latencies() -> None:
    metrics = compute_metrics(RUN[:-2])
    assert (metrics.num_completed, metrics.num_unfinished) == (1, 1)
    assert metrics.inter_token_latency_s is None
    assert metrics.time_to_first_token_s == summarize([2.5])
    assert metrics.requests[-1].outcome == "unfinished"
    assert metrics.requests[-1].output_tokens == 2  # the step of the third has not ended
    assert metrics.output_tokens == 3


def test_aborted_and_failed_requests_are_counted_apart() -> None:
    events = [RequestFinished("a", 7.9, "aborted") if e == RequestFinished("a", 7.9, "length") else e for e in RUN]
    metrics = compute_metrics(events)
    assert (metrics.num_completed, metrics.num_aborted) == (1, 1)
    assert metrics.requests[-1].end_to_end_s is None
    assert metrics.inter_token_latency_s is None
    between_steps = [*RUN[:8], RequestFinished("a", 4.0, "error")]
    assert compute_metrics(between_steps).num_failed == 1


def test_nothing_happened() -> None:
    metrics = compute_metrics(RUN[:1])
    assert metrics.duration_s == metrics.requests_per_s == metrics.hit_rate == metrics.mean_kv_use == 0
    assert metrics.time_to_first_token_s is None


def test_a_preemption_counts_what_is_computed_again_and_what_is_found_again() -> None:
    metrics = compute_metrics(preempting_run())
    assert (metrics.num_preemptions, metrics.num_preempted_requests) == (1, 1)
    # Request 1 had 7 tokens cached when it was preempted; it comes back with 8 tokens, none of them in the cache.
    assert metrics.recomputed_tokens == 7
    assert (metrics.readmitted_tokens, metrics.readmitted_hit_tokens) == (8, 0)
    assert metrics.looked_up_tokens == 5 + 4
    assert metrics.computed_tokens == (5 + 8) + (4 + 9) + 7


def test_as_plain_values() -> None:
    metrics = compute_metrics(RUN)
    figures = metrics.to_dict()
    assert figures["num_completed"] == 2
    assert figures["end_to_end_s"]["max"] == 7.0
    assert "requests" not in figures
    assert metrics.to_dict(requests=True)["requests"][0]["request"] == "b"
    assert msgspec.json.decode(msgspec.json.encode(figures)) == figures


def test_an_event_about_nothing_is_an_error_with_its_line() -> None:
    with pytest.raises(TraceError, match=r"run\.jsonl:2: names 'x', which is not there"):
        compute_metrics([RUN[0], RequestFinished("x", 0.0, "length")], "run.jsonl")
    with pytest.raises(TraceError, match=r"events:1: config\.num_blocks is None: a whole number from 1 to 33554432 is"):
        compute_metrics([TraceStarted(1, "", "", "", {})])
    with pytest.raises(TraceError, match=r"run\.jsonl:2: content ab of block 0 is evicted, but it holds nothing"):
        compute_metrics([RUN[0], BlockEvicted(0, "ab")], "run.jsonl")
    with pytest.raises(TraceError, match=r"events:2: block 10 is released, but no table holds it"):
        compute_metrics([RUN[0], BlocksFreed("a", [10])])


@pytest.mark.parametrize(
    ("number", "event", "message"),
    [
        (1, RequestAdded("a", -2.0, -3.0, 6, 3), "2: time runs backwards, from 0.0 s to -2.0 s"),
        (1, RequestAdded("a", 2.0, -1.0, 6, 3), "2: request a came at -1.0 s, before the start"),
        (1, RequestAdded("a", 2.0, 3.0, 6, 3), "2: request a came at 3.0 s, and was handed over at 2.0 s"),
        (3, StepStarted(0, 1.5, 1, 0, 10), "4: time runs backwards, from 2.0 s to 1.5 s"),
        (7, StepFinished(0, -4.0, "prefill", 6), "8: time runs backwards, from 2.0 s to -4.0 s"),
        (
            14,
            RequestFinished("b", 4.9, "bored"),
            "15: request b ends for 'bored', not one of eos, stop, length, aborted",
        ),
    ],
)
def test_times_must_make_sense(number: int, event: AnyEvent, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        compute_metrics([*RUN[:number], event, *RUN[number + 1 :]], "run.jsonl")
    assert str(caught.value).startswith(f"run.jsonl:{message}")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.data())
def test_summaries_equal_numpy_s(values: list[float], data: st.DataObject) -> None:
    values += data.draw(st.lists(st.sampled_from(values), max_size=50))
    latency = summarize(values)
    assert latency is not None
    assert latency.count == len(values)
    assert latency.mean == pytest.approx(np.mean(values))
    assert [latency.p50, latency.p90, latency.p95, latency.p99] == pytest.approx(
        np.percentile(values, [50, 90, 95, 99])
    )
    assert latency.max == max(values)


@given(scenarios())
@settings(max_examples=60)
def test_figures_equal_those_of_a_full_replay(scenario: Scenario) -> None:
    events = scenario.run()
    metrics = compute_metrics(events)
    replay, token_steps, in_use, cached_free = Replay(), defaultdict(list), [], []
    appended: list[int | str] = []
    for event in events:
        replay.apply(event)
        if isinstance(event, (ChunkScheduled, DecodeScheduled)):
            use = replay.pool.num_blocks_in_use, replay.pool.num_cached_free_blocks
        elif isinstance(event, TokensAppended):
            appended = event.requests
        elif isinstance(event, StepFinished):
            for request in appended:
                token_steps[request].append(event.time)
            appended = []
            if event.tokens:
                in_use.append(use[0])
                cached_free.append(use[1])
    rows = {row.request: row for row in metrics.requests}
    assert len(rows) == len(replay.finished)
    for state in replay.finished:
        row, times = rows[state.request], token_steps[state.request]
        assert row.output_tokens == state.num_completion_tokens == len(times)
        assert row.num_preemptions == state.num_preemptions
        if times:
            assert row.time_to_first_token_s == times[0] - state.arrival
    blocks = scenario.config.num_kvcache_blocks
    if in_use:
        assert metrics.mean_kv_use == pytest.approx(statistics.mean(in_use) / blocks)
        assert metrics.mean_kv_cached_free == pytest.approx(statistics.mean(cached_free) / blocks)
        assert metrics.peak_kv_use == max(in_use) / blocks
    completed = [row for row in metrics.requests if row.outcome == "completed"]
    num_gaps = sum(row.output_tokens - 1 for row in completed)
    assert (metrics.inter_token_latency_s.count if metrics.inter_token_latency_s else 0) == num_gaps


@given(scenarios())
@settings(max_examples=20)
def test_a_listener_gets_the_same_figures(scenario: Scenario) -> None:
    collector = MetricsCollector()
    events = scenario.run(emit=collector.apply)
    assert summarize_run(collector) == compute_metrics(events)
