"""How a step is carried out: it is decided, computed, and its results are taken in. Here one step after the other; in
``lookahead`` one step ahead."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from nanovllm.engine.backend import Backend
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import Clock
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import StepError
from nanovllm.trace.events import Emit, StepFinished, StepStarted


class StepResult(NamedTuple):
    """What one step did, and when on the engine's clock. ``num_tokens``: how many it computed. ``error`` says why
    its requests failed, if they did."""

    step: int
    batch: ScheduledBatch
    finished: list[Sequence]
    error: StepError | None
    num_tokens: int
    started_s: float
    finished_s: float


class Steps(Protocol):
    """Carries out step after step. One turn of the engine's loop is ``take_in``, new requests, ``go_on``."""

    step_index: int
    """The next step to be decided."""

    @property
    def are_in_flight(self) -> bool:
        """Whether a step has been decided whose result ``go_on`` has not returned."""
        ...

    def take_in(self) -> None:
        """Bring the scheduler up to date for the next decision."""
        ...

    def go_on(self) -> StepResult | None:
        """Decide the next step. Returns the result of the first that has none yet, or None if there is none so far."""
        ...


class Lockstep:
    """One step after the other: whoever decides waits for the backend, and the other way round."""

    are_in_flight = False

    def __init__(self, scheduler: Scheduler, backend: Backend, clock: Clock, emit: Emit | None) -> None:
        self.step_index = 0
        self._scheduler = scheduler
        self._backend = backend
        self._clock = clock
        self._emit = emit

    def take_in(self) -> None:
        """See ``Steps``. Each step is taken in at its end."""

    def go_on(self) -> StepResult:
        """See ``Steps``. A step that schedules nothing does not call the backend."""
        step, scheduler, clock, emit = self.step_index, self._scheduler, self._clock, self._emit
        started_s = clock.now()
        batch = decide(scheduler, step, started_s, emit)
        num_tokens = batch.num_tokens
        finished: list[Sequence] = []
        step_error: StepError | None = None
        if batch.sequences:
            try:
                token_ids = self._backend.execute(batch)
            except StepError as error:
                step_error, finished = error, fail(scheduler, batch, clock.now())
            else:
                finished = scheduler.postprocess(batch.sequences, token_ids, batch.is_prefill, clock.now())
        finished_s = clock.now()
        if emit is not None:
            emit(StepFinished(step, finished_s, batch.phase, num_tokens))
        self.step_index += 1
        return StepResult(step, batch, finished, step_error, num_tokens, started_s, finished_s)


def decide(scheduler: Scheduler, step: int, time_s: float, emit: Emit | None) -> ScheduledBatch:
    """Begin a step: what it computes."""
    if emit is not None:
        queues = len(scheduler.waiting), len(scheduler.running)
        emit(StepStarted(step, time_s, *queues, scheduler.block_manager.num_free_blocks))
    return scheduler.schedule()


def fail(scheduler: Scheduler, batch: ScheduledBatch, time_s: float) -> list[Sequence]:
    """End the requests of a step that could not be computed. Returns them, without those that have ended before."""
    failed = [seq for seq in batch.sequences if not seq.is_finished]
    for seq in failed:
        scheduler.finish(seq, "error", time_s)
    return failed
