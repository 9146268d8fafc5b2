"""Figures of several runs as those of one."""

from __future__ import annotations

from statistics import quantiles

import pytest

from nanovllm.config import Config
from nanovllm.trace.events import AnyEvent, StepFinished
from nanovllm.trace.metrics import Metrics, compute_metrics
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.merged import merge_collectors, merge_runs
from nanovllm.trace.metrics.slo import Slo
from sim import simulate
from sim.generators import independent_requests, poisson, uniform
from tests.sim.runs import SecondPerToken

CONFIG = Config(kvcache_block_size=4, num_kvcache_blocks=40, max_num_batched_tokens=64, max_num_seqs=8)
SLO = Slo(time_to_first_token_s=20, time_per_output_token_s=5)


def trace_of(rate_per_s: float, count: int) -> list[AnyEvent]:
    load = independent_requests(
        count, prompt_len=uniform(1, 40), output_len=uniform(1, 30), arrivals=poisson(rate_per_s), seed=count
    )
    return simulate(CONFIG, load, cost_model=SecondPerToken()).events


@pytest.fixture(scope="module")
def traces() -> list[list[AnyEvent]]:
    return [trace_of(0.01, 30), trace_of(0.1, 50), trace_of(1.0, 7)]


def figures(events: list[AnyEvent]) -> Metrics:
    return compute_metrics(events, slo=SLO)


def test_one_run_stays_what_it_is(traces: list[list[AnyEvent]]) -> None:
    for events in traces:
        assert merge_runs([events]) == compute_metrics(events)


def test_a_run_that_is_cut_keeps_its_unfinished_requests(traces: list[list[AnyEvent]]) -> None:
    for events in traces:
        cut = events[: len(events) // 2]
        assert compute_metrics(cut).num_unfinished > 0
        assert merge_runs([cut]) == compute_metrics(cut)


def test_counts_are_sums_and_rates_are_over_the_whole_time(traces: list[list[AnyEvent]]) -> None:
    parts, whole = list(map(figures, traces)), merged(traces)
    for name in ("num_requests", "num_completed", "output_tokens", "computed_tokens", "hit_tokens", "num_preemptions"):
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts)
    for name in ("busy_s", "num_steps", "num_prefill_steps", "num_decode_steps", "looked_up_tokens"):
        assert getattr(whole, name) == pytest.approx(sum(getattr(part, name) for part in parts))
    first = min(row.arrival_s for part in parts for row in part.requests)
    last = max(event.time for events in traces for event in events if isinstance(event, StepFinished))
    assert whole.duration_s == pytest.approx(last - first)
    assert whole.output_tokens_per_s == pytest.approx(whole.output_tokens / whole.duration_s)


def test_percentiles_are_those_of_all_requests(traces: list[list[AnyEvent]]) -> None:
    parts, whole = list(map(figures, traces)), merged(traces)
    latencies = [row.time_to_first_token_s for part in parts for row in part.requests]
    first = whole.time_to_first_token_s
    assert first is not None
    percentiles = quantiles([each for each in latencies if each is not None], n=100, method="inclusive")
    assert (first.count, first.p50, first.p99) == pytest.approx((87, percentiles[49], percentiles[98]))
    gaps = [part.inter_token_latency_s for part in parts]
    assert whole.inter_token_latency_s is not None
    assert whole.inter_token_latency_s.count == sum(gap.count for gap in gaps if gap is not None)


def test_limits_are_kept_by_all_requests_together(traces: list[list[AnyEvent]]) -> None:
    parts, whole = list(map(figures, traces)), merged(traces)
    assert whole.slo is not None
    assert whole.slo.num_met == sum(part.slo.num_met for part in parts if part.slo is not None) > 0
    assert whole.slo.num_requests == 87


def test_the_pool_is_as_full_as_on_average_and_at_most_as_the_fullest(traces: list[list[AnyEvent]]) -> None:
    parts, whole = list(map(figures, traces)), merged(traces)
    assert whole.peak_kv_use == max(part.peak_kv_use for part in parts)
    assert min(part.mean_kv_use for part in parts) < whole.mean_kv_use < max(part.mean_kv_use for part in parts)


def merged(traces: list[list[AnyEvent]]) -> Metrics:
    collectors = [MetricsCollector(slo=SLO) for _ in traces]
    for collector, events in zip(collectors, traces, strict=True):
        for event in events:
            collector.apply(event)
    return merge_collectors(collectors)
