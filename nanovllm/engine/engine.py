"""The loop: hand over arrivals, carry out steps; the same for every backend and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from nanovllm.config import Config
from nanovllm.engine.arrivals import Arrivals
from nanovllm.engine.backend import AsynchronousBackend, Backend, ObservedBackend
from nanovllm.engine.clock import Clock, WallClock
from nanovllm.engine.held_events import HeldEvents
from nanovllm.engine.lookahead import Lookahead
from nanovllm.engine.policies import find_scheduler
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.engine.steps import Lockstep, StepResult, Steps
from nanovllm.errors import RequestError
from nanovllm.trace.events import SCHEMA_VERSION, Emit, RequestId, RequestRejected, TraceStarted


class Engine:
    """Drives a backend by a scheduler. ``emit`` receives each event of the trace, if given.

    With a backend that can be given a step before it has finished the last one, the engine is one step ahead of it
    unless ``config.lookahead`` is off: see ``lookahead``.
    """

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
        self.rejected: list[tuple[RequestId, RequestError]] = []
        self.vocab_size = vocab_size
        self.on_end: list[Callable[[RequestId, float], object]] = []
        """Called with the id of each request that ends, in whatever way, and the time at which it did."""
        self._refused_meanwhile: list[RequestId] = []
        self._emit = emit
        make_scheduler = find_scheduler(config.policy) if scheduler is None else scheduler
        if config.lookahead is not False and isinstance(backend, AsynchronousBackend):
            events = None if emit is None else HeldEvents(emit)
            self._emit = None if events is None else events.take
            self.scheduler = make_scheduler(self.config, self._emit)
            self._steps: Steps = Lookahead(self.scheduler, backend, self.clock, events)
        else:
            self.scheduler = make_scheduler(self.config, emit)
            self._steps = Lockstep(self.scheduler, backend, self.clock, emit)
        if emit is not None:
            policy = config.policy if scheduler is None else scheduler.__name__
            options = self.config.scheduling_options()
            emit(TraceStarted(SCHEMA_VERSION, backend.name, policy, config.model, options, self.facts))

    @property
    def facts(self) -> dict[str, Any]:
        """What a trace's header tells beside the options: of the backend, if it tells anything, and whether steps are
        decided ahead."""
        if not isinstance(self.backend, ObservedBackend):
            return {}
        return {**self.backend.facts, "lookahead": isinstance(self._steps, Lookahead)}

    @property
    def step_index(self) -> int:
        """The next step to be decided; while it is, the current one."""
        return self._steps.step_index

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
        if self.vocab_size is None:
            return
        import numpy as np  # whose maximum takes next to nothing, and whose import more than all the others here

        if (largest := int(np.frombuffer(seq.prompt, np.uint32).max())) >= self.vocab_size:
            raise RequestError(
                "bad_token_id",
                f"request {seq.request_id!r}: the prompt holds token id {largest}, "
                f"but the vocabulary ends at {self.vocab_size - 1}",
            )

    def abort(self, request_id: RequestId) -> bool:
        """End a request early, in any state. False: it was not there (any more)."""
        now_s = self.clock.now()
        was_there = self.scheduler.abort(request_id, now_s)
        if was_there:
            self._note_ended(request_id, now_s)
        return was_there

    def _note_ended(self, request_id: RequestId, time_s: float) -> None:
        for note in tuple(self.on_end):  # another thread may begin or end a run
            note(request_id, time_s)

    def _note_all_ended(self, result: StepResult) -> None:
        refused, self._refused_meanwhile = self._refused_meanwhile, []
        for request_id in (*refused, *(seq.request_id for seq in result.finished)):
            self._note_ended(request_id, result.finished_s)

    # ---- the loop --------------------------------------------------------------------------------------------

    def run(self, requests: Iterable[Request] = ()) -> Iterator[StepResult]:
        """Run until every request has ended, yielding after each step.

        ``requests`` come in the order of their arrival and are read no further than the clock requires, so a
        generator may be endless. Those that can never run land in ``rejected``. Where those stand that wait for
        others, see ``Arrivals``: one that stands elsewhere raises ``RequestError``.
        """
        arrivals = Arrivals(requests)
        self.on_end.append(arrivals.note_ended)
        try:
            while True:
                result = self.turn_if_busy(arrivals.pop_while(self._is_due))
                if result is not None:
                    yield result
                elif self.is_idle:
                    if (head := arrivals.head) is None:
                        assert not arrivals.num_awaited, "a request waits for one that is not there"
                        return
                    self._skip_to(head)
        finally:
            self.on_end.remove(arrivals.note_ended)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, runs or is in flight: only a new request makes a step of it."""
        return not self._steps.are_in_flight and self.scheduler.is_finished()

    def _is_due(self, request: Request) -> bool:
        if request.arrival_step is not None:
            return request.arrival_step <= self.step_index
        return request.arrival_s <= self.clock.now()

    def _skip_to(self, request: Request) -> None:
        if request.arrival_step is not None:
            self._steps.step_index = request.arrival_step
        else:
            self.clock.wait_until(request.arrival_s)

    def _hand_over(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self._add_or_reject(request)

    def _add_or_reject(self, request: Request) -> None:
        try:
            self.add(request)
        except RequestError as error:
            self.rejected.append((request.request_id, error))
            if error.reason == "duplicate_id":
                return  # the other one of this id goes on
            if self._steps.are_in_flight:  # as in the trace: what happens meanwhile counts as done when a step is over
                self._refused_meanwhile.append(request.request_id)
            else:
                self._note_ended(request.request_id, self.clock.now())

    def turn_if_busy(self, arrivals: Iterable[Request]) -> StepResult | None:
        """Hand ``arrivals`` over and take a turn, unless the engine is idle even so: a step of nothing would be
        recorded. Returns what ``turn`` does; who runs several engines on one time calls it for each in its time."""
        if not self._steps.are_in_flight:
            self._hand_over(arrivals)
            if self.scheduler.is_finished():
                return None
            arrivals = ()
        return self.turn(arrivals)

    def turn(self, arrivals: Iterable[Request] = ()) -> StepResult | None:
        """One turn of the loop: what can be known of the step in flight is taken in, ``arrivals`` are handed over, the
        next step is decided. Returns the result of a step, None if there is none yet: the engine just began to look
        ahead."""
        self._steps.take_in()
        self._hand_over(arrivals)
        result = self._steps.go_on()
        if result is not None and (result.finished or self._refused_meanwhile):
            self._note_all_ended(result)
        return result

    def step(self) -> StepResult:
        """Turn until there is the result of a step. One that schedules nothing does not call the backend."""
        while (result := self.turn()) is None:
            pass
        return result

    def settle(self) -> None:
        """When no request is left, wait for what is still in flight, so that no step of the trace is left open."""
        while self._steps.are_in_flight and self.scheduler.is_finished():
            self.turn()

    def close(self) -> None:
        """Give back what the backend holds."""
        self.backend.close()
