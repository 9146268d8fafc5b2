"""How a step is carried out: it is decided, computed, and its results are taken in. Here one step after the other; in
``lookahead`` one step ahead."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from nanovllm.engine.backend import Backend, ObservedBackend
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import Clock
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError, StepError
from nanovllm.trace.events import Emit, StepFinished, StepStarted


class StepResult(NamedTuple):
    """What one step did, and when on the engine's clock. ``num_tokens``: how many it computed. ``error`` says why
    its requests failed, if they did. ``host_s``, ``device_s``: parts of its time as in ``StepFinished``, None if the
    backend does not tell them."""

    step: int
    batch: ScheduledBatch
    finished: list[Sequence]
    error: StepError | None
    num_tokens: int
    started_s: float
    finished_s: float
    host_s: float | None = None
    device_s: float | None = None


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
        self._observed = backend if isinstance(backend, ObservedBackend) else None
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
        handed_over_s = came_back_s = clock.now()
        if batch.sequences:
            try:
                token_ids = self._backend.execute(batch)
            except StepError as error:
                step_error, finished = error, fail(scheduler, batch, clock.now())
            else:
                came_back_s = clock.now()
                finished = scheduler.postprocess(batch.sequences, token_ids, batch.is_prefill, came_back_s)
        finished_s = clock.now()
        host_s = device_s = None
        if self._observed is not None and batch.sequences and step_error is None:
            times = self._observed.step_times
            host_s = times.host_s + (finished_s - came_back_s) + (handed_over_s - started_s)
            device_s = times.device_s
        if emit is not None:
            emit(StepFinished(step, finished_s, batch.phase, num_tokens, host_s, device_s))
        self.step_index += 1
        return StepResult(step, batch, finished, step_error, num_tokens, started_s, finished_s, host_s, device_s)


def decide(scheduler: Scheduler, step: int, time_s: float, emit: Emit | None) -> ScheduledBatch:
    """Begin a step: what it computes. Raises ``ConfigError`` for a scheduler of one's own that gives something else."""
    if emit is not None:
        queues = len(scheduler.waiting), len(scheduler.running)
        emit(StepStarted(step, time_s, *queues, scheduler.block_manager.num_free_blocks))
    batch = scheduler.schedule()
    if not isinstance(batch, ScheduledBatch):
        made_by = f"{type(scheduler).__module__}:{type(scheduler).__qualname__}"
        told = f"its schedule() returned {type(batch).__name__}, a ScheduledBatch is needed"
        raise ConfigError("policy", made_by, told)
    return batch


def fail(scheduler: Scheduler, batch: ScheduledBatch, time_s: float) -> list[Sequence]:
    """End the requests of a step that could not be computed. Returns them, without those that have ended before."""
    failed = [seq for seq in batch.sequences if not seq.is_finished]
    for seq in failed:
        scheduler.finish(seq, "error", time_s)
    return failed
