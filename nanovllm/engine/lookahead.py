"""One step ahead: while the backend computes step k, step k+1 is decided and submitted.

For that, the scheduler takes in step k before its tokens are known: blocks, counters and lengths do not depend on
them. ``UNKNOWN_TOKEN`` stands for each of them meanwhile. In one turn of the loop,

    step k is taken in, all but its tokens · new requests come · step k+1 is decided and submitted · the tokens of
    step k come: they are filled in, and those whose request they end leave step k+1, in which they were already

So between turns no token is unknown, and the step in flight is just computing, as any step is at some time. Requests
that end by their length do so at the same step as without looking ahead, and so every decision is the same. One that
ends by a token is found out one step later; what was computed of it in that step is dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from nanovllm.engine.backend import AsynchronousBackend, ObservedBackend, PendingStep
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import Clock
from nanovllm.engine.held_events import HeldEvents
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.engine.steps import StepResult, decide, fail
from nanovllm.errors import StepError
from nanovllm.trace.events import Emit, StepFinished


@dataclass(slots=True)
class _Step:
    """A step that has been decided. ``pending``: None if it was not submitted, for want of anything to compute or
    because of ``error``."""

    index: int
    batch: ScheduledBatch
    num_tokens: int
    started_s: float
    pending: PendingStep | None = None
    error: Exception | None = None
    is_taken_in: bool = False
    finished: list[Sequence] = field(default_factory=list)
    finished_s: float = 0.0
    engine_s: float = 0.0
    """What the engine's own work for it took, without the backend's."""
    host_s: float | None = None
    device_s: float | None = None


class Lookahead:
    """``Steps`` that are decided while the backend computes the step before.

    ``events``: what scheduler and engine emit to, None if nobody listens. Events are held back from the first that
    lacks a token until this token is there, so that a trace tells them in the same order as without looking ahead.
    """

    def __init__(
        self, scheduler: Scheduler, backend: AsynchronousBackend, clock: Clock, events: HeldEvents | None
    ) -> None:
        self.step_index = 0
        self._scheduler = scheduler
        self._backend = backend
        self._observed = backend if isinstance(backend, ObservedBackend) else None
        self._clock = clock
        self._events = events
        self._emit: Emit | None = None if events is None else events.take
        self._steps: deque[_Step] = deque()  # two only within a turn, or after one that was broken off

    @property
    def are_in_flight(self) -> bool:
        """See ``Steps``."""
        return bool(self._steps)

    # ---- the turn --------------------------------------------------------------------------------------------

    def take_in(self) -> None:
        """See ``Steps``. The step in flight counts as computed, all but its tokens."""
        if not self._steps or self._steps[0].is_taken_in:
            return
        step = self._steps[0]
        step.is_taken_in = True
        begun_s = self._clock.now()
        if step.error is None:
            if self._events is not None:
                self._events.hold()
            unknown = [UNKNOWN_TOKEN] * len(step.batch.sequences)
            self._scheduler.postprocess(step.batch.sequences, unknown, step.batch.is_prefill)
        else:
            self._take_in_failed(step)
        step.engine_s += self._clock.now() - begun_s
        if self._emit is not None:
            self._emit(StepFinished(step.index, step.finished_s, step.batch.phase, step.num_tokens))

    def go_on(self) -> StepResult | None:
        """See ``Steps``. The first step is only submitted: its result comes with the next call."""
        if not self._steps:
            self._submit()
            return None
        if len(self._steps) == 1 and not self._scheduler.is_finished():
            self._submit()
        return self._complete()

    def _submit(self) -> None:
        started_s = self._clock.now()
        batch = decide(self._scheduler, self.step_index, started_s, self._emit)
        step = _Step(self.step_index, batch, batch.num_tokens, started_s)
        step.engine_s = self._clock.now() - started_s
        if batch.sequences:
            try:
                step.pending = self._backend.submit(batch)
            except Exception as error:
                step.error = error  # until this step's turn: the one before is not affected
        self._steps.append(step)
        self.step_index += 1

    def _complete(self) -> StepResult:
        """Wait for the tokens of the first step; it is taken in already."""
        step = self._steps[0]
        token_ids = [] if step.pending is None else step.pending.result()
        self._steps.popleft()
        if step.error is None:
            step.finished_s = self._clock.now()
            if self._observed is not None and step.pending is not None:
                times = self._observed.step_times
                step.host_s, step.device_s = times.host_s, times.device_s
            self._fill_in(step, token_ids)
        if self._steps:
            ahead = self._steps[0]
            ahead.started_s = max(ahead.started_s, step.finished_s)
        error = step.error if isinstance(step.error, StepError) else None
        return StepResult(
            step.index,
            step.batch,
            step.finished,
            error,
            step.num_tokens,
            step.started_s,
            step.finished_s,
            step.host_s,
            step.device_s,
        )

    def _fill_in(self, step: _Step, token_ids: list[int]) -> None:
        seqs = step.batch.sequences
        try:
            step.finished = self._scheduler.fill_in(seqs, token_ids, step.finished_s)
        finally:
            if step.host_s is not None:
                step.host_s += step.engine_s + (self._clock.now() - step.finished_s)
            if self._events is not None:
                tokens = {seq.request_id: token for seq, token in zip(seqs, token_ids, strict=True)}
                reasons = {seq.request_id: seq.finish_reason for seq in seqs if seq.finish_reason is not None}
                self._events.release(step.finished_s, tokens, reasons, step.host_s, step.device_s)

    def _take_in_failed(self, step: _Step) -> None:
        """A step that could not be submitted: it fails its requests, or the engine."""
        if not isinstance(step.error, StepError):
            self._steps.popleft()
            assert step.error is not None, "a step without an error has not failed"
            raise step.error
        step.finished_s = self._clock.now()
        step.finished = fail(self._scheduler, step.batch, step.finished_s)
