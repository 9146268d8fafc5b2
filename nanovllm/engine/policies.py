"""The scheduling policies by name."""

from __future__ import annotations

from nanovllm.engine.scheduler import Scheduler

SCHEDULERS: dict[str, type[Scheduler]] = {"prefill_first": Scheduler}
"""Each policy's name (``Config.policy``) and its scheduler class."""
