"""The scheduling policies by name. ``prefill_first`` is the scheduler itself; each other one has its file here, or is
one's own."""

from __future__ import annotations

from inspect import isabstract

from nanovllm.engine.policies.mixed import MixedScheduler
from nanovllm.engine.policies.priority import PriorityScheduler
from nanovllm.engine.policies.shortest_first import ShortestFirstScheduler
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import ConfigError
from nanovllm.own_classes import import_class

SCHEDULERS: dict[str, type[Scheduler]] = {
    "prefill_first": Scheduler,
    "mixed": MixedScheduler,
    "priority": PriorityScheduler,
    "shortest_first": ShortestFirstScheduler,
}
"""Each policy's name (``Config.policy``) and its scheduler class."""


def find_scheduler(policy: str) -> type[Scheduler]:
    """The class that ``Config.policy`` names. Raises ``ConfigError`` if ``module:Class`` is not there, or is no
    ``Scheduler``."""
    if policy in SCHEDULERS:
        return SCHEDULERS[policy]
    found = import_class("policy", policy)
    if not issubclass(found, Scheduler) or isabstract(found):
        raise ConfigError("policy", policy, "a subclass of nanovllm.engine.scheduler.Scheduler is needed")
    return found
