"""Figures about numbers: the budget, latencies, the cliff, and where two runs part."""

from __future__ import annotations

import numpy as np
import pytest

from nanovllm.config import Config
from nanovllm.errors import TraceError, UserError
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.metrics import compute_metrics
from sim import simulate
from sim.workload import WorkloadRequest
from tests.trace.runs import preempting_run
from tests.viz.figures import runs
from tests.viz.figures.drawn import flaws, texts_of
from viz.figures import (
    CliffPoint,
    compare,
    first_difference,
    history_of,
    latency,
    latency_curves,
    pool_cliff,
    pool_cliff_data,
    step_tokens,
)
from viz.figures.axis import step_axis
from viz.figures.budget import budget_use


def simulated(num_blocks: int = 40, num_requests: int = 12) -> list[AnyEvent]:
    """Requests of growing length, all there from the start."""
    load = [
        WorkloadRequest(id=index, prompt_len=20 + index, max_tokens=40, output_len=10 + index % 30)
        for index in range(num_requests)
    ]
    config = Config(kvcache_block_size=8, num_kvcache_blocks=num_blocks, max_num_batched_tokens=64)
    return simulate(config, load).events


def test_budget() -> None:
    history = history_of(runs.a_bit_of_everything())
    use = budget_use(history, step_axis(history))
    computed = compute_metrics(runs.a_bit_of_everything()).computed_tokens
    assert use.prefill_tokens + use.decode_tokens == computed
    assert use.share == pytest.approx(computed / (12 * len(history.steps)))
    first = budget_use(history, step_axis(history, (0, 2)))
    assert (first.prefill_tokens, first.decode_tokens, first.num_steps) == (12 + 2 + 1, 0, 3)
    assert first.share == pytest.approx(15 / 36)


def test_tokens_of_each_step_are_written() -> None:
    texts = texts_of(step_tokens(runs.a_bit_of_everything()))
    assert {"12", "budget 12", "prefill", "decode", "unused"} <= texts


def test_latencies_are_those_of_the_metrics() -> None:
    events = simulated()
    metrics = compute_metrics(events)
    curves = latency_curves(events)
    assert [curve.summary if curve else None for curve in curves] == [
        metrics.time_to_first_token_s,
        metrics.time_per_output_token_s,
        metrics.inter_token_latency_s,
        metrics.end_to_end_s,
    ]
    for curve in curves:
        assert curve is not None
        assert (np.diff(curve.values_s) >= 0).all()
        assert (np.diff(curve.shares) >= 0).all()
        assert (curve.shares[0], curve.shares[-1]) == (0.0, 1.0)
        marks = [curve.summary.p50, curve.summary.p90, curve.summary.p99]
        assert np.interp([0.5, 0.9, 0.99], curve.shares, curve.values_s) == pytest.approx(marks), (
            "marks lie on the curve"
        )
        assert curve.values_s[-1] == curve.summary.max


def test_latency_of_a_single_request() -> None:
    events = runs.run([runs.request("A", range(3), 1)], num_blocks=2)
    first, per_token, between, end_to_end = latency_curves(events)
    assert first is not None
    assert (first.values_s.tolist(), first.shares.tolist()) == ([0.003, 0.003], [0.0, 1.0])
    assert (per_token, between) == (None, None)
    assert end_to_end is not None


def test_latencies_of_nothing() -> None:
    events = preempting_run()[:4]
    assert latency_curves(events) == [None] * 4
    assert "none: no request was completed" in texts_of(latency(events))


def test_cliff() -> None:
    sizes = (20, 40, 200)
    traces = [simulated(size) for size in sizes]
    points = pool_cliff_data(reversed(traces))
    metrics = {size: compute_metrics(trace) for size, trace in zip(sizes, traces, strict=True)}
    assert points == pool_cliff_data(metrics)
    assert [point.num_blocks for point in points] == list(sizes)
    assert points[0].num_preemptions > 0
    largest = metrics[200]
    assert largest.time_to_first_token_s is not None
    assert points[2] == CliffPoint(
        200, 0, largest.time_to_first_token_s.p99, largest.output_tokens_per_s, largest.hit_rate
    )
    enough = next(point.num_blocks for point in points if not point.num_preemptions)
    assert f"no preemptions from {enough} blocks on" in texts_of(pool_cliff(traces))


def test_cliff_needs_runs_of_different_sizes() -> None:
    with pytest.raises(UserError, match="there is none"):
        pool_cliff([])
    with pytest.raises(UserError, match="two runs have a KV pool of 4 blocks"):
        pool_cliff([preempting_run(), preempting_run()])
    with pytest.raises(TraceError, match="does not tell num_blocks"):
        pool_cliff([preempting_run()[1:]])


def test_first_difference_of_two_runs() -> None:
    a = runs.run([runs.request("A", range(6), 4), runs.request("B", range(9, 15), 4, 2)], num_blocks=9)
    b = runs.run([runs.request("A", range(6), 4), runs.request("B", range(9, 16), 4, 2)], num_blocks=9)
    difference = first_difference(a, b)
    assert difference is not None
    assert difference.step == 2
    figure = compare(a, b, labels=("six", "seven"))
    assert flaws(figure) == []
    assert {"first difference", "six: What each request does", "seven: Use of the KV pool"} <= texts_of(figure)
    lines = [line for ax in figure.axes for line in ax.lines if list(line.get_xdata()) == [1.5, 1.5]]
    assert len(lines) == 4, "one in each panel, where step 2 begins"


def test_runs_that_decide_alike() -> None:
    figure = compare(preempting_run(), preempting_run())
    assert "the decisions are the same" in texts_of(figure)
    assert "first difference" not in texts_of(figure)


def test_a_run_that_ends_before_the_difference() -> None:
    events = preempting_run()
    figure = compare(events, events[: len(events) // 2])
    assert "first difference" in texts_of(figure)
    assert len({ax.get_xlim() for ax in figure.axes}) == 1, "both runs are drawn on equal axes"
