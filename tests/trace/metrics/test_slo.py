"""What requests are promised: a run by hand, and random ones against a slower way to count."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import ConfigError
from nanovllm.trace.metrics import Metrics, compute_metrics
from nanovllm.trace.metrics.slo import LIMITS, Fluidity, Slo, SloAttainment
from tests.trace.metrics.test_run_metrics import RUN
from tests.trace.runs import Scenario, scenarios

# Of RUN: a has its first token after 3 s, the next ones 1 s and 3 s later; b its only one after 2.5 s; c is refused.

limits = st.one_of(st.none(), st.floats(0.001, 0.5))
slos = st.builds(Slo, **dict.fromkeys(LIMITS, limits))


def attained(metrics: Metrics) -> SloAttainment:
    assert metrics.slo is not None
    return metrics.slo


def test_by_hand() -> None:
    slo = Slo(time_to_first_token_s=3, time_per_output_token_s=1.5, end_to_end_s=5)
    metrics = compute_metrics(RUN, slo=slo)
    assert attained(metrics) == SloAttainment(
        limits={"time_to_first_token_s": 3, "time_per_output_token_s": 1.5, "end_to_end_s": 5},
        num_requests=3,
        num_met=1,  # b
        attainment=1 / 3,
        attainment_by_limit={"time_to_first_token_s": 2 / 3, "time_per_output_token_s": 1 / 3, "end_to_end_s": 1 / 3},
        goodput_requests_per_s=1 / 7,
        goodput_tokens_per_s=1 / 7,
        # a's tokens are due at 4, 5.5 and 7; they come at 4, 5 and 8. All of b's (one) is in time.
        fluidity=Fluidity(
            count=2,
            mean=pytest.approx((1 + 2 / 3) / 2),
            p50=pytest.approx((1 + 2 / 3) / 2),
            p10=pytest.approx(2 / 3 + 0.1 / 3),
            p1=pytest.approx(2 / 3 + 0.01 / 3),
            min=2 / 3,
            fluid_share=1 / 3,
        ),
    )
    assert [row.fluidity_index for row in metrics.requests] == [1.0, 2 / 3]


def test_a_limit_is_met_by_those_that_just_keep_to_it() -> None:
    just = Slo(time_to_first_token_s=3, time_per_output_token_s=2, inter_token_latency_s=3, end_to_end_s=7)
    assert attained(compute_metrics(RUN, slo=just)).attainment == 2 / 3
    for name, limit_s in just.limits.items():
        tighter = replace(just, **{name: 0.999 * limit_s})
        assert attained(compute_metrics(RUN, slo=tighter)).num_met == 1


def test_without_a_limit_all_that_were_completed_count() -> None:
    metrics = compute_metrics(RUN, slo=Slo())
    assert attained(metrics).attainment == 2 / 3
    assert attained(metrics).goodput_requests_per_s == metrics.requests_per_s
    assert attained(metrics).fluidity is None


def test_who_was_not_completed_met_nothing() -> None:
    cut = attained(compute_metrics(RUN[:-2], slo=Slo(time_to_first_token_s=100)))
    assert (cut.num_requests, cut.num_met) == (3, 1)
    nothing = attained(compute_metrics(RUN[:1], slo=Slo(end_to_end_s=1)))
    assert (nothing.num_requests, nothing.attainment, nothing.goodput_requests_per_s) == (0, 0.0, 0.0)


def test_nothing_is_promised_unless_asked() -> None:
    metrics = compute_metrics(RUN)
    assert metrics.slo is None
    assert {row.fluidity_index for row in metrics.requests} == {None}
    told = compute_metrics(RUN, slo=Slo(end_to_end_s=3)).to_dict()
    assert told["slo"]["attainment_by_limit"] == {"end_to_end_s": 1 / 3}
    assert msgspec.json.decode(msgspec.json.encode(told)) == told


@pytest.mark.parametrize("limit", [0, -1, 1e-10, float("nan"), float("inf"), 10**400, True, "1", [1]])
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_a_duration(name: str, limit: object) -> None:
    message = re.escape(f"{name}=") + ".* is not allowed: a number of seconds, 1e-09 or more"
    with pytest.raises(ConfigError, match=message):
        Slo(**{name: limit})  # type: ignore[arg-type]


@given(scenarios(), slos)
@settings(max_examples=60)
def test_as_counted_by_hand(scenario: Scenario, slo: Slo) -> None:
    metrics = compute_metrics(scenario.run(), slo=slo)
    told, rows = attained(metrics), [row for row in metrics.requests if row.outcome == "completed"]
    assert told.num_requests == metrics.num_requests + metrics.num_rejected
    fast = [
        row
        for row in rows
        if all(
            limit_s is None or duration_s is None or duration_s <= limit_s
            for limit_s, duration_s in (
                (slo.time_to_first_token_s, row.time_to_first_token_s),
                (slo.time_per_output_token_s, row.time_per_output_token_s),
                (slo.inter_token_latency_s, row.longest_gap_s),
                (slo.end_to_end_s, row.end_to_end_s),
            )
        )
    ]
    assert told.num_met == len(fast)
    assert told.goodput_tokens_per_s * metrics.duration_s == pytest.approx(sum(row.output_tokens for row in fast))
    assert told.goodput_requests_per_s <= metrics.requests_per_s
    assert told.goodput_tokens_per_s <= metrics.output_tokens_per_s
    for share in told.attainment_by_limit.values():
        assert 0 <= told.attainment <= share <= 1


@given(scenarios(), slos, st.data())
@settings(max_examples=30)
def test_wider_limits_are_met_by_no_fewer(scenario: Scenario, slo: Slo, data: st.DataObject) -> None:
    wider = replace(slo, **{name: limit_s + data.draw(st.floats(0, 0.3)) for name, limit_s in slo.limits.items()})
    events = scenario.run()
    strict, loose = (attained(compute_metrics(events, slo=limits)) for limits in (slo, wider))
    assert strict.num_met <= loose.num_met
    assert strict.goodput_tokens_per_s <= loose.goodput_tokens_per_s
    for name, share in strict.attainment_by_limit.items():
        assert share <= loose.attainment_by_limit[name]
    if strict.fluidity is not None and loose.fluidity is not None:
        assert strict.fluidity.mean <= loose.fluidity.mean + 1e-12
        assert strict.fluidity.fluid_share <= loose.fluidity.fluid_share


@given(scenarios(), st.floats(0.001, 0.1), st.floats(0.001, 0.1))
@settings(max_examples=30)
def test_fluidity_is_that_of_the_completed_requests(scenario: Scenario, first_s: float, each_s: float) -> None:
    events = scenario.run()
    metrics = compute_metrics(events, slo=Slo(time_to_first_token_s=first_s, time_per_output_token_s=each_s))
    indices = [row.fluidity_index for row in metrics.requests if row.outcome == "completed"]
    told = attained(metrics).fluidity
    if told is None:
        assert not indices
        return
    assert told.count == len(indices) == metrics.num_completed
    assert [told.mean, told.p50, told.p10, told.p1] == pytest.approx(
        [np.mean(indices), *np.percentile(indices, [50, 10, 1])]
    )
    assert 0 <= told.min == min(indices)
    assert told.fluid_share == sum(index >= 0.9 for index in indices) / attained(metrics).num_requests
