"""Whether a trace keeps the laws: those that ``replay`` enforces, and those it does not need.

Each law has a name and a sentence in ``laws.LAWS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from nanovllm.errors import ContradictionError
from nanovllm.trace.events import (
    Admitted,
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.replay import Replay
from nanovllm.trace.state.laws import ENGINE_POLICIES, Violation
from nanovllm.trace.state.ranks import Ranks

_REASONS_WITH_A_TOKEN = ("eos", "stop", "length")
_REASONS = (*_REASONS_WITH_A_TOKEN, "aborted", "error")


def check(events: Iterable[AnyEvent], *, complete: bool = True) -> list[Violation]:
    """All violations, in order. A contradiction is the last one: what comes after it cannot be judged.

    ``complete``: the trace goes to the end of its run, so what is unfinished at its end is a violation.
    """
    checker = _Checker()
    for event in events:
        if not checker.take(event):
            return checker.violations
    if complete:
        checker.check_end()
    return checker.violations


class _Checker:
    """Replays and watches. Methods in ``_BEFORE`` see the state that an event meets, those in ``_AFTER`` the one that
    it leaves."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._replay = Replay()
        self._index = -1
        self._num_requests_at_start = 0
        self._step_tokens = 0
        self._phases: set[str] = set()
        self._got_token: set[RequestId] = set()
        self._got_token_before: set[RequestId] = set()
        self._evicted: list[int] = []
        self._recounted_at = 0
        self._num_steps = 0
        self._ranks: Ranks | None = None
        self._is_own_policy = False

    def take(self, event: AnyEvent) -> bool:
        """Take in the next event; False if it contradicts those before it."""
        self._index += 1
        kind = type(event)
        if self._evicted and kind is not BlockEvicted:
            self._watch_hand_out(event)
        if (watch := _BEFORE.get(kind)) is not None:
            watch(self, event)
        try:
            self._replay.apply(event)
        except ContradictionError as error:
            self._report(error.law, error.sentence)
            return False
        if (watch := _AFTER.get(kind)) is not None:
            watch(self, event)
        return True

    def check_end(self) -> None:
        """The laws of the end of a run."""
        replay = self._replay
        if replay.is_in_step:
            self._report("ends", f"step {replay.step} has not ended")
        for request in replay.requests:
            self._report("ends", f"request {request} has not ended")
        if num_held := replay.pool.num_blocks_in_use:
            self._report("all_free", f"{num_held} of {replay.pool.num_blocks} blocks are in use")
        self._recount()

    def _report(self, law: str, message: str) -> None:
        self.violations.append(Violation(law, self._replay.step, self._index, message))

    def _option(self, name: str) -> int | None:
        """A limit that the header tells, None if it tells none."""
        header = self._replay.header
        value = None if header is None else header.config.get(name)
        return value if isinstance(value, int) and value != -1 else None

    # ---- before an event -------------------------------------------------------------------------------------

    def _watch_arrival(self, event: RequestAdded) -> None:
        if self._ranks is not None:
            self._ranks.add(event, self._num_steps)
        if event.arrival < 0:
            self._report("arrival", f"request {event.request} came at {event.arrival} s, before the start")
        if event.arrival > event.time:
            self._report(
                "arrival", f"request {event.request} is handed over at {event.time} s, before {event.arrival} s"
            )

    def _watch_order(self, event: ChunkScheduled | Admitted) -> None:
        state = self._replay.requests.get(event.request)
        if state is not None and state.is_prefilling:
            return
        first = self._first_waiting(event.request)
        if first != event.request:
            self._report("order", f"request {event.request} is scheduled before {first}, which waits ahead of it")

    def _first_waiting(self, request: RequestId) -> RequestId:
        """Whose turn it is, if it may be that of ``request``."""
        waiting, requests = self._replay.waiting, self._replay.requests
        if self._ranks is not None:
            return self._ranks.first(waiting) if waiting else request
        return next(
            (other for other in waiting if other == request or not requests[other].num_scheduled_tokens), request
        )

    def _watch_victim(self, event: Preempted) -> None:
        running = self._replay.running
        if running and event.request != (last := running[-1] if self._ranks is None else self._ranks.last(running)):
            self._report("victim", f"request {event.request} is preempted, but {last} is at the tail")

    def _watch_caching(self, event: PrefixHit | BlocksHashed) -> None:
        if self._option("enable_prefix_caching") is False:
            self._report("caching_off", f"blocks {event.blocks} of request {event.request}")

    def _watch_watermark(self, event: BlocksAllocated) -> None:
        state, reserved = self._replay.requests.get(event.request), self._option("watermark_blocks")
        if state is None or not reserved or not self._replay.running:
            return
        num_left = len(self._replay.free_blocks) - len(event.blocks)
        if state.status == "waiting" and not state.num_preemptions and num_left < reserved:
            self._report("watermark", f"request {event.request} is admitted and leaves {num_left} blocks of {reserved}")

    def _watch_hand_out(self, event: AnyEvent) -> None:
        handed_out = event.blocks if isinstance(event, BlocksAllocated) else []
        if missing := [block for block in self._evicted if block not in handed_out]:
            self._report("hand_out", f"blocks {missing} were evicted and are not handed out")
        self._evicted = []

    def _watch_held(self, event: Held) -> None:
        max_num_seqs, budget = self._option("max_num_seqs"), self._option("max_num_batched_tokens")
        if event.reason == "no_slot":
            is_so = max_num_seqs is None or len(self._replay.running) >= max_num_seqs
        elif event.reason == "no_budget":
            is_so = budget is None or self._step_tokens >= budget
        elif event.reason == "chunk_not_first":
            is_so = bool(self._replay.scheduled)
        elif event.reason == "no_blocks":
            is_so = not self._would_fit(event.request)
        else:
            is_so = self._is_own_policy
        if not is_so or event.request in self._replay.scheduled:
            self._report("held", f"request {event.request} is held for {event.reason!r}, which is not so")

    def _would_fit(self, request: RequestId) -> bool:
        """Whether a whole request fits, beside what the prompts of others still need, even if all its blocks had to be
        new."""
        state, pool = self._replay.requests.get(request), self._replay.pool
        if state is None:
            return False
        running = (self._replay.requests[other] for other in self._replay.running)
        prefilling = (other for other in running if other.is_prefilling)
        num_missing = sum(other.num_missing_blocks(pool.block_size) for other in (state, *prefilling))
        return num_missing + (self._option("watermark_blocks") or 0) <= len(pool.free_blocks)

    def _watch_reason(self, event: RequestFinished) -> None:
        state = self._replay.requests.get(event.request)
        if event.reason not in _REASONS:
            self._report("reason", f"request {event.request} ends for {event.reason!r}, not one of {_REASONS}")
        elif event.reason in _REASONS_WITH_A_TOKEN and not self._may_end_by_token(event):
            self._report("reason", f"request {event.request} ends for {event.reason!r} without a token that ends it")
        elif event.reason == "length" and state is not None and state.num_completion_tokens != state.max_tokens:
            self._report(
                "reason", f"request {event.request} ends for its length at {state.num_completion_tokens} tokens"
            )

    def _may_end_by_token(self, event: RequestFinished) -> bool:
        """Whether the request got a token in this step; or in the step before, if it is what the token says that ends
        it: an engine that decides one step ahead learns it only then."""
        if event.request in self._got_token:
            return True
        return event.reason != "length" and event.request in self._got_token_before

    # ---- after an event --------------------------------------------------------------------------------------

    def _note_policy(self, event: TraceStarted) -> None:
        self._ranks = Ranks.of(event)
        self._is_own_policy = event.policy not in ENGINE_POLICIES

    def _start_step(self, event: StepStarted) -> None:
        self._num_steps += 1
        self._num_requests_at_start = event.waiting + event.running
        self._step_tokens = 0
        self._phases = set()
        self._got_token_before, self._got_token = self._got_token, set()

    def _watch_slots(self, event: Admitted | ChunkScheduled) -> None:
        limit, num_running = self._option("max_num_seqs"), len(self._replay.running)
        if limit is not None and num_running > limit:
            self._report("slots", f"{num_running} requests run, max_num_seqs is {limit}")

    def _count_chunk(self, event: ChunkScheduled) -> None:
        if event.remaining == 0:
            self._watch_slots(event)
        self._count_tokens(event.tokens, "prefill")

    def _count_decode(self, event: DecodeScheduled) -> None:
        self._count_tokens(len(event.requests), "decode")

    def _count_tokens(self, num_tokens: int, phase: str) -> None:
        self._phases.add(phase)
        self._step_tokens += num_tokens
        limit = self._option("max_num_batched_tokens")
        if limit is not None and self._step_tokens > limit and "prefill" in self._phases:
            self._report("budget", f"{self._step_tokens} tokens are scheduled, max_num_batched_tokens is {limit}")

    def _note_evicted(self, event: BlockEvicted) -> None:
        self._evicted.append(event.block)

    def _watch_lengths(self, event: TokensAppended) -> None:
        self._got_token.update(event.requests)
        limit = self._option("max_model_len")
        for request in event.requests:
            state = self._replay.requests[request]
            if state.num_completion_tokens > state.max_tokens:
                self._report(
                    "max_tokens", f"request {request} has {state.num_completion_tokens} tokens of {state.max_tokens}"
                )
            if limit is not None and state.num_tokens > limit:
                self._report("max_model_len", f"request {request} has {state.num_tokens} tokens, the limit is {limit}")

    def _finish_step(self, event: StepFinished) -> None:
        if not event.tokens and self._num_requests_at_start:
            self._report("progress", f"{self._num_requests_at_start} requests were there, and none was scheduled")
        phase = "mixed" if len(self._phases) == 2 else next(iter(self._phases), event.phase)
        if event.phase != phase:
            self._report("phase", f"the step is called {event.phase}, it was {phase}")
        # Now and then, so that counting all blocks does not dominate.
        if self._index - self._recounted_at > self._replay.pool.num_blocks:
            self._recount()

    def _recount(self) -> None:
        """Count anew what the replay keeps up to date."""
        self._recounted_at = self._index
        pool = self._replay.pool
        held = Counter(block for state in self._replay.requests.values() for block in state.block_table)
        for block, count in enumerate(pool.ref_counts):
            if count != held[block]:
                self._report("references", f"block {block} has {count} references, {held[block]} tables hold it")
            if (count == 0) is not (block in pool.free_blocks):
                self._report("conservation", f"block {block} has {count} references, and is free or not against that")


_Watch = Callable[[_Checker, Any], None]
_BEFORE: dict[type, _Watch] = {
    RequestAdded: _Checker._watch_arrival,
    Admitted: _Checker._watch_order,
    ChunkScheduled: _Checker._watch_order,
    Preempted: _Checker._watch_victim,
    PrefixHit: _Checker._watch_caching,
    BlocksHashed: _Checker._watch_caching,
    BlocksAllocated: _Checker._watch_watermark,
    Held: _Checker._watch_held,
    RequestFinished: _Checker._watch_reason,
}
_AFTER: dict[type, _Watch] = {
    TraceStarted: _Checker._note_policy,
    StepStarted: _Checker._start_step,
    Admitted: _Checker._watch_slots,
    ChunkScheduled: _Checker._count_chunk,
    DecodeScheduled: _Checker._count_decode,
    BlockEvicted: _Checker._note_evicted,
    TokensAppended: _Checker._watch_lengths,
    StepFinished: _Checker._finish_step,
}
