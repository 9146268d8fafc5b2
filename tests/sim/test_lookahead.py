"""A simulation that decides one step ahead: what passes side by side, and what stays the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.trace.check import check
from nanovllm.trace.events import RequestAdded, RequestFinished, StepFinished, StepStarted, TraceStarted
from sim import SimulationResult, simulate
from sim.cluster import simulate_cluster
from sim.cost_models import StepTime
from sim.generators import independent_requests, uniform
from sim.workload import WorkloadRequest
from tests.sim.runs import SMALL, as_bytes, of_kind, requests
from tests.sim.test_outputs import decisions


class HostAndGpu:
    """So many seconds of each, whatever the batch."""

    def __init__(self, host_s: float, gpu_s: float) -> None:
        self.step = StepTime(host_s=host_s, weights_s=gpu_s)

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        return self.step


def run(host_s: float, gpu_s: float, *, lookahead: bool = True, **options: object) -> SimulationResult:
    load = options.pop("load", requests((3, 4, 0)))
    return simulate(replace(SMALL, lookahead=lookahead), load, cost_model=HostAndGpu(host_s, gpu_s), **options)


@pytest.mark.parametrize(
    ("host_s", "gpu_s", "ends"),
    [
        (1.0, 4.0, [5.0, 9.0, 13.0, 17.0]),  # the program is hidden behind the card, but for the first step
        (4.0, 1.0, [8.0, 12.0, 16.0, 17.0]),  # the card waits: tokens come after the submission of the step behind
        (2.0, 2.0, [4.0, 6.0, 8.0, 10.0]),
        (0.0, 3.0, [3.0, 6.0, 9.0, 12.0]),
    ],
)
def test_a_step_takes_as_long_as_the_slower_of_program_and_card(host_s: float, gpu_s: float, ends: list[float]) -> None:
    result = run(host_s, gpu_s)
    finished = of_kind(result, StepFinished)
    assert [event.time for event in finished] == ends
    assert [(event.host, event.device) for event in finished] == [(host_s, gpu_s)] * 4
    assert result.time_spent == StepTime(host_s=4 * host_s, weights_s=4 * gpu_s)
    assert check(result.events) == []


def test_without_it_one_waits_for_the_other() -> None:
    result = run(1.0, 4.0, lookahead=False)
    assert [event.time for event in of_kind(result, StepFinished)] == [5.0, 10.0, 15.0, 20.0]
    assert [event.time for event in of_kind(result, StepStarted)] == [0.0, 5.0, 10.0, 15.0]


class MeasuredAhead(HostAndGpu):
    """Measured with an engine that looks ahead."""

    hardware, num_gpus, dtype, lookahead = "NVIDIA H200", 1, "bfloat16", True


@pytest.mark.parametrize(
    ("cost_model", "unless_chosen"), [(HostAndGpu(1.0, 4.0), False), (MeasuredAhead(1.0, 4.0), True)]
)
def test_the_options_decide_and_else_how_the_times_were_measured(cost_model: HostAndGpu, unless_chosen: bool) -> None:
    load = requests((3, 4, 0))
    for chosen in (None, False, True):
        config, is_on = replace(SMALL, lookahead=chosen), unless_chosen if chosen is None else chosen
        cluster = simulate_cluster(config, load, num_replicas=1, cost_model=cost_model)
        for result in (simulate(config, load, cost_model=cost_model), cluster.replicas[0]):
            [header] = of_kind(result, TraceStarted)
            assert header.facts["lookahead"] is is_on
            assert result.time_s == (17.0 if is_on else 20.0)


def test_an_end_by_a_token_is_noticed_one_step_later_and_costs_what_was_computed() -> None:
    load = [WorkloadRequest(id="a", prompt_len=3, max_tokens=9, output_len=3)]
    behind, ahead = (run(0.0, 1.0, lookahead=is_ahead, load=load) for is_ahead in (False, True))
    assert [event.reason for result in (behind, ahead) for event in of_kind(result, RequestFinished)] == ["eos"] * 2
    assert (behind.num_steps, ahead.num_steps) == (3, 4)
    assert check(ahead.events) == []


def test_decisions_are_the_same_where_length_alone_ends_requests() -> None:
    load = list(independent_requests(40, prompt_len=uniform(1, 40), output_len=uniform(1, 20), seed=3))
    small = replace(SMALL, num_kvcache_blocks=20)
    behind, ahead = (simulate(replace(small, lookahead=is_ahead), load) for is_ahead in (False, True))
    assert decisions(ahead.events) == decisions(behind.events)
    assert ahead.time_s < behind.time_s
    assert as_bytes(ahead.events) == as_bytes(simulate(replace(small, lookahead=True), load).events)


def test_arrivals_are_noticed_while_a_step_is_computed() -> None:
    """Request 1 comes at 1.5, when step 1 is decided. Step 2 is decided at 5, with it, and follows step 1 at 9."""
    result = run(1.0, 4.0, load=requests((3, 4, 0), (3, 1, 1.5), (3, 1, 50.0)))
    assert [(event.request, event.arrival, event.time) for event in of_kind(result, RequestAdded)] == [
        (0, 0.0, 0.0),
        (1, 1.5, 9.0),
        (2, 50.0, 50.0),
    ]
    started = of_kind(result, StepStarted)
    assert all(later.time >= earlier.time for earlier, later in pairwise(started))
    assert result.time_s == 55.0
