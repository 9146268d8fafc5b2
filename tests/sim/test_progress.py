"""A policy that holds everything back is told so; one that only holds back for a while is not."""

from __future__ import annotations

from functools import partial

import pytest

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.policies.mixed import MixedScheduler
from nanovllm.errors import ConfigError
from sim import simulate
from sim.cluster import simulate_cluster
from tests.sim.runs import SMALL, SecondPerToken, requests

LOAD = requests((5, 3, 0.0), (5, 3, 4.0))


class Idle(MixedScheduler):
    """Never schedules anything."""

    def schedule(self) -> ScheduledBatch:
        return ScheduledBatch([], False)


class Slow(MixedScheduler):
    """Works in every tenth step."""

    num_asked = 0

    def schedule(self) -> ScheduledBatch:
        self.num_asked += 1
        return ScheduledBatch([], False) if self.num_asked % 10 else super().schedule()


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_policy_that_schedules_nothing_is_one_error(num_replicas: int) -> None:
    run = simulate if num_replicas == 1 else partial(simulate_cluster, num_replicas=num_replicas)
    problem = r"^policy='Idle' is not allowed: it left 1,000 steps in a row empty, the last of them step 999 "
    with pytest.raises(ConfigError, match=problem + r"\(requests: 1 waiting, 0 running\)$"):
        run(SMALL, LOAD, cost_model=SecondPerToken(), scheduler=Idle)


def test_one_that_holds_back_for_a_while_goes_on() -> None:
    result = simulate(SMALL, LOAD, cost_model=SecondPerToken(), scheduler=Slow)
    assert result.metrics.num_completed == 2
    assert result.num_steps == 10 * 4
