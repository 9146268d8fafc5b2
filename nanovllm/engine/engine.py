"""The loop: hand over arrivals, schedule, execute, postprocess; the same for every backend and clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from nanovllm.config import Config
from nanovllm.engine.backend import Backend
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import Clock, WallClock
from nanovllm.engine.policies import SCHEDULERS
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import RequestError, StepError
from nanovllm.trace.events import (
    SCHEMA_VERSION,
    Emit,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TraceStarted,
)


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


class Engine:
    """Drives a backend by a scheduler. ``emit`` receives each event of the trace, if given."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        *,
        clock: Clock | None = None,
        emit: Emit | None = None,
        vocab_size: int | None = None,
        scheduler: type[Scheduler] | None = None,
    ) -> None:
        """``vocab_size``: prompts with ids from there upward are refused; None accepts all. ``scheduler``: one's own
        class instead of the one that ``config.policy`` names; the trace's header tells its name."""
        self.config = replace(config, num_kvcache_blocks=backend.num_kv_blocks)
        self.backend = backend
        self.clock: Clock = WallClock() if clock is None else clock
        self.scheduler = (SCHEDULERS[config.policy] if scheduler is None else scheduler)(self.config, emit)
        self.step_index = 0
        self.rejected: list[tuple[RequestId, RequestError]] = []
        self._vocab_size = vocab_size
        self._emit = emit
        if emit is not None:
            policy = config.policy if scheduler is None else scheduler.__name__
            options = self.config.scheduling_options()
            emit(TraceStarted(SCHEMA_VERSION, backend.name, policy, config.model, options))

    # ---- requests --------------------------------------------------------------------------------------------

    def add(self, request: Request) -> Sequence:
        """Hand a request to the scheduler. One that can never run is recorded as rejected and raises
        ``RequestError``; the others go on."""
        now_s = self.clock.now()
        try:
            seq = request.to_sequence()
            self._check_vocabulary(seq)
            self.scheduler.add(seq, now_s, now_s if request.arrival_step is not None else request.arrival_s)
        except RequestError as error:
            if self._emit is not None:
                blocks = error.needed_blocks, error.num_blocks
                self._emit(RequestRejected(request.request_id, now_s, error.reason, *blocks))
            raise
        return seq

    def _check_vocabulary(self, seq: Sequence) -> None:
        if self._vocab_size is not None and max(seq.token_ids) >= self._vocab_size:
            raise RequestError(
                "bad_token_id",
                f"request {seq.request_id!r}: the prompt holds token id {max(seq.token_ids)}, "
                f"but the vocabulary ends at {self._vocab_size - 1}",
            )

    def abort(self, request_id: RequestId) -> bool:
        """End a request early, in any state. False: it was not there (any more)."""
        return self.scheduler.abort(request_id, self.clock.now())

    # ---- the loop --------------------------------------------------------------------------------------------

    def run(self, requests: Iterable[Request] = ()) -> Iterator[StepResult]:
        """Run until every request has ended, yielding after each step.

        ``requests`` come in the order of their arrival and are read no further than the clock requires, so a
        generator may be endless. Those that can never run land in ``rejected``.
        """
        arrivals = _Arrivals(requests)
        while True:
            while arrivals.head is not None and self._is_due(arrivals.head):
                self._add_or_reject(arrivals.pop())
            if not self.scheduler.is_finished():
                yield self.step()
            elif arrivals.head is not None:
                self._skip_to(arrivals.head)
            else:
                return

    def _is_due(self, request: Request) -> bool:
        if request.arrival_step is not None:
            return request.arrival_step <= self.step_index
        return request.arrival_s <= self.clock.now()

    def _skip_to(self, request: Request) -> None:
        if request.arrival_step is not None:
            self.step_index = request.arrival_step
        else:
            self.clock.wait_until(request.arrival_s)

    def _add_or_reject(self, request: Request) -> None:
        try:
            self.add(request)
        except RequestError as error:
            self.rejected.append((request.request_id, error))

    def step(self) -> StepResult:
        """One step: schedule, execute, postprocess. A step that schedules nothing does not call the backend."""
        step, scheduler, emit = self.step_index, self.scheduler, self._emit
        started_s = self.clock.now()
        if emit is not None:
            queues = len(scheduler.waiting), len(scheduler.running)
            emit(StepStarted(step, started_s, *queues, scheduler.block_manager.num_free_blocks))
        batch = scheduler.schedule()
        num_tokens = batch.num_tokens
        finished: list[Sequence] = []
        step_error: StepError | None = None
        if batch.sequences:
            try:
                token_ids = self.backend.execute(batch)
            except StepError as error:
                step_error, finished = error, self._fail(batch)
            else:
                finished = scheduler.postprocess(batch.sequences, token_ids, batch.is_prefill, self.clock.now())
        finished_s = self.clock.now()
        if emit is not None:
            emit(StepFinished(step, finished_s, batch.phase, num_tokens))
        self.step_index += 1
        return StepResult(step, batch, finished, step_error, num_tokens, started_s, finished_s)

    def _fail(self, batch: ScheduledBatch) -> list[Sequence]:
        failed = [seq for seq in batch.sequences if not seq.is_finished]
        for seq in failed:
            self.scheduler.finish(seq, "error", self.clock.now())
        return failed

    def close(self) -> None:
        """Give back what the backend holds."""
        self.backend.close()


class _Arrivals:
    """Requests to come, in order of arrival, with a look at the next one."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self.head = next(self._requests, None)

    def pop(self) -> Request:
        request = self.head
        assert request is not None, "no request is left"
        self.head = next(self._requests, None)
        return request
