"""The names that a config may hold are those that there is a scheduler for."""

from __future__ import annotations

from nanovllm.config import POLICIES
from nanovllm.engine.policies import SCHEDULERS


def test_every_policy_has_its_scheduler() -> None:
    assert tuple(SCHEDULERS) == POLICIES
