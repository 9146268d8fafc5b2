"""The names that a config may hold are those that there is a scheduler for."""

from __future__ import annotations

import pytest

from nanovllm.config import OPTIONS_OF_POLICIES, POLICIES, Config
from nanovllm.engine.policies import SCHEDULERS, find_scheduler
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import ConfigError


class Own(Scheduler):
    """A policy of one's own; decides as the default does."""


OWN = f"{__name__}:Own"


def test_every_policy_has_its_scheduler() -> None:
    assert tuple(SCHEDULERS) == POLICIES
    assert [find_scheduler(policy) for policy in POLICIES] == [*SCHEDULERS.values()]


def test_a_class_of_ones_own() -> None:
    assert find_scheduler(OWN) is Own


@pytest.mark.parametrize("policy", ["pathlib:Path", "nanovllm.engine.policies.ranked:RankedScheduler"])
def test_what_is_no_scheduler(policy: str) -> None:
    """Also one that leaves a method to others."""
    with pytest.raises(ConfigError, match=r"a subclass of nanovllm\.engine\.scheduler\.Scheduler is needed$"):
        find_scheduler(policy)


def test_options_of_ones_own_policy_are_its_own_business() -> None:
    config = Config(policy=OWN, admit_by="chunk", ageing=0.5)
    options = config.scheduling_options()
    assert (options["admit_by"], options["max_prefill_tokens_per_request"], options["ageing"]) == ("chunk", -1, 0.5)
    assert Config(policy=OWN).ageing_per_step == 0
    assert config.with_policy("mixed") == Config(policy="mixed", admit_by="chunk")
    assert config.with_policy("prefill_first") == Config()
    assert Config(policy="mixed", admit_by="chunk").with_policy(OWN) == Config(policy=OWN, admit_by="chunk")
    assert {name for names in OPTIONS_OF_POLICIES.values() for name in names} <= options.keys()
