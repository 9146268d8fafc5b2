"""Summaries of many durations: exact as long as they are few, close and in little memory if they are many."""

from __future__ import annotations

import json
import sys
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from nanovllm.trace.events import RequestAdded, StepFinished
from nanovllm.trace.metrics import collector, compute_metrics, latency, summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.latency import Distribution, Durations, Latency, coarsened, summarize
from nanovllm.trace.metrics.slo import Slo
from tests.trace.metrics.test_run_metrics import RUN
from tests.trace.runs import Scenario, scenarios

ROUNDING = 1.3e-4
durations = st.lists(st.floats(0, 1e6), max_size=60)


def collected(values: list[float]) -> Durations:
    all_of_them = Durations()
    for value in values:
        all_of_them.append(value)
    return all_of_them


def figures(summary: Latency | None) -> list[float]:
    assert summary is not None
    return list(msgspec.structs.astuple(summary))


@given(durations)
def test_few_are_exact(values: list[float]) -> None:
    assert collected(values).summarize() == summarize(values)
    assert collected(values).count == len(values)
    assert collected(values).total_s == sum(values)


@given(st.lists(st.floats(0, sys.float_info.max), min_size=1, max_size=8))
@example([1.7e308, 1.7e308, 1.0])
def test_a_mean_lies_between_the_least_and_the_most_also_where_the_sum_is_no_float(values: list[float]) -> None:
    for numbers in (values, Counter(values), Counter(dict.fromkeys(values, 1000))):
        found = Distribution(numbers)
        assert found.min * (1 - 1e-15) <= found.mean <= found.max * (1 + 1e-15)
        assert found.min <= found.percentile(0.9) <= found.max


@given(st.lists(st.floats(0, sys.float_info.max), min_size=4, max_size=4).map(sorted))
@example([0.0, 0.0, 1e308, 1.7e308])
def test_there_are_figures_for_all_times_that_a_float_holds(times_s: list[float]) -> None:
    events = []
    for event in RUN:
        time_s = getattr(event, "time", None)
        if time_s is not None:
            event = msgspec.structs.replace(event, time=times_s[min(3, int(time_s) // 2)])
        if isinstance(event, RequestAdded):
            event = msgspec.structs.replace(event, arrival=event.time)
        if isinstance(event, StepFinished):
            event = msgspec.structs.replace(event, host=event.time, device=event.time)
        events.append(event)
    metrics = compute_metrics(events, slo=Slo(time_to_first_token_s=1e-9, time_per_output_token_s=1e-9))
    told = json.dumps(metrics.to_dict(requests=True), allow_nan=True)
    assert "NaN" not in told


@given(durations, durations)
def test_two_collections_are_one(values: list[float], more: list[float]) -> None:
    both = collected(values)
    both.absorb(collected(more))
    assert both.summarize() == summarize([*values, *more])
    assert both.count == len(values) + len(more)


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_many_are_rounded(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "MAX_EXACT", limit)
    values = np.random.default_rng(1).lognormal(-3, 2, 2500).tolist()
    together = collected(values[:1800])
    together.absorb(collected(values[1800:]))
    for many in (collected(values), together):
        assert many.count == len(values)
        assert many.total_s == pytest.approx(sum(values))
        assert figures(many.summarize()) == pytest.approx(figures(summarize(values)), rel=ROUNDING)
        assert len(many._exact) < limit


def test_rounding_bounds_how_many_there_are() -> None:
    rng = np.random.default_rng(1)
    exact = Counter(rng.uniform(0.001, 1.024, 300_000).tolist())  # ten doublings
    coarse = coarsened(exact)
    assert coarse.total() == exact.total()
    assert len(coarse) <= 10 * 2**12 + 1
    assert coarsened(coarse) == coarse
    assert max(coarse) == pytest.approx(max(exact), rel=ROUNDING)
    assert coarsened(Counter([0.0])) == Counter([0.0])


@given(scenarios())
@settings(max_examples=30)
def test_figures_are_the_same_without_the_requests(scenario: Scenario) -> None:
    slo = Slo(time_to_first_token_s=0.05, time_per_output_token_s=0.02)
    lean, events = MetricsCollector(slo=slo, keep_requests=False), scenario.run()
    lean.apply_all(events)
    full = compute_metrics(events, slo=slo)
    assert summarize_run(lean).requests == lean.rows == []
    assert summarize_run(lean).to_dict() == full.to_dict()
    assert summarize_run(lean) == summarize_run(lean), "summing up changes nothing"


def test_gaps_are_coarsened_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_DISTINCT", 3)
    monkeypatch.setattr(latency, "_SIGNIFICANT_BITS", 1)
    gathered = MetricsCollector()
    gathered.gaps.update([1.0, 1.1, 1.2, 3.0, 3.3])
    gathered.apply_all(RUN)
    # Five distinct ones when b ends; a's gaps of 1 s and 3 s come after.
    assert gathered.gaps == Counter({1.0: 3 + 1, 4.0: 2, 3.0: 1})
