"""Whether a simulation gets anywhere."""

from __future__ import annotations

from nanovllm.engine.engine import Engine
from nanovllm.engine.steps import StepResult
from nanovllm.errors import ConfigError

MAX_EMPTY_STEPS = 1000
"""In a row. Every policy that comes along schedules something in the step after one that only preempted."""


class Progress:
    """Notices a policy of one's own that holds everything back. Steps of nothing take no time, so on a virtual clock
    nothing would ever change for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._num_empty_steps = 0

    def note(self, result: StepResult) -> None:
        """Take in the next step. Raises ``ConfigError`` after ``MAX_EMPTY_STEPS`` of nothing."""
        if result.num_tokens:
            self._num_empty_steps = 0
            return
        self._num_empty_steps += 1
        if self._num_empty_steps >= MAX_EMPTY_STEPS:
            scheduler = self._engine.scheduler
            requests = f"{len(scheduler.waiting):,} waiting, {len(scheduler.running):,} running"
            problem = f"it left {MAX_EMPTY_STEPS:,} steps in a row empty, the last of them step {result.step:,}"
            raise ConfigError("policy", type(scheduler).__name__, f"{problem} (requests: {requests})")
