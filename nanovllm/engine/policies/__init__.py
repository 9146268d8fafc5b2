"""The scheduling policies by name. ``prefill_first`` is the scheduler itself; each other one has its file here."""

from __future__ import annotations

from nanovllm.engine.policies.mixed import MixedScheduler
from nanovllm.engine.policies.priority import PriorityScheduler
from nanovllm.engine.policies.shortest_first import ShortestFirstScheduler
from nanovllm.engine.scheduler import Scheduler

SCHEDULERS: dict[str, type[Scheduler]] = {
    "prefill_first": Scheduler,
    "mixed": MixedScheduler,
    "priority": PriorityScheduler,
    "shortest_first": ShortestFirstScheduler,
}
"""Each policy's name (``Config.policy``) and its scheduler class."""
