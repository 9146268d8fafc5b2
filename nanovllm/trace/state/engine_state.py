"""The state of an engine, and what each event does to it."""

from __future__ import annotations

from collections import deque

from nanovllm.trace.events import (
    Admitted,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.state.laws import BrokenLawError, require_64_bits
from nanovllm.trace.state.pool import BlockPool, read_pool_size
from nanovllm.trace.state.request_state import RequestState


class EngineState:
    """Queues, requests and KV pool. Each method takes in one event, or raises ``BrokenLawError`` where it contradicts
    those before it; ``replay`` says when results count as taken in."""

    def __init__(self) -> None:
        self.header: TraceStarted | None = None
        self.step = -1
        """The current step, or the last one between steps; -1 before the first."""
        self.is_in_step = False
        self.time = 0.0
        """The latest time that an event has told, in seconds."""
        self.waiting: deque[RequestId] = deque()
        self.running: deque[RequestId] = deque()
        self.requests: dict[RequestId, RequestState] = {}
        """Those that have not ended, and one that just did until its blocks are freed."""
        self.finished: list[RequestState] = []
        """Those that have ended, in order. An id may come twice: it is free again after the end."""
        self.num_rejected = 0
        self.scheduled: dict[RequestId, int] = {}
        """What the current (or last) step computes: request -> number of tokens, in order of scheduling."""
        self.unsettled: deque[RequestState] = deque()
        """Scheduled ones whose results are not taken in yet."""
        self.releasing: RequestState | None = None
        """The request that the next event frees the blocks of."""
        self.pool = BlockPool(0, 1)

    def _get(self, request: RequestId) -> RequestState:
        state = self.requests.get(request)
        if state is None or state.status == "finished":
            raise BrokenLawError("request", f"request {request} is not there: it was never added, or has ended")
        return state

    def _advance(self, time: float) -> None:
        if time < self.time:
            raise BrokenLawError("time", f"time runs backwards, from {self.time} s to {time} s")
        self.time = time

    # ---- trace, requests and steps ---------------------------------------------------------------------------

    def start(self, event: TraceStarted) -> None:
        """Lay out the pool: all blocks free, in id order."""
        if self.header is not None:
            raise BrokenLawError("header", "a second trace_started")
        self.pool = BlockPool(*read_pool_size(event))
        self.header = event

    def add(self, event: RequestAdded) -> None:
        """A new request stands at the tail of ``waiting``."""
        self._advance(event.time)
        require_64_bits(event.request, event.prompt_tokens, event.max_tokens)
        if event.request in self.requests:
            raise BrokenLawError("request", f"request {event.request} is added, but one with this id has not ended")
        if event.prompt_tokens < 1 or event.max_tokens < 1:
            raise BrokenLawError("counts", f"request {event.request} has no prompt or nothing to generate")
        state = RequestState(
            event.request, event.arrival, event.prompt_tokens, event.max_tokens, num_tokens=event.prompt_tokens
        )
        self.requests[event.request] = state
        self.waiting.append(event.request)

    def reject(self, event: RequestRejected) -> None:
        """A refused request changes nothing."""
        self._advance(event.time)
        self.num_rejected += 1

    def start_step(self, event: StepStarted) -> None:
        """From here until ``finish_step`` decisions are made."""
        require_64_bits(event.step)
        if self.is_in_step or event.step <= self.step:
            last = f"step {self.step} is not finished" if self.is_in_step else f"step {self.step} was before"
            raise BrokenLawError("step", f"step {event.step} starts, but {last}")
        self._advance(event.time)
        told = event.waiting, event.running, event.free_blocks
        known = len(self.waiting), len(self.running), len(self.pool.free_blocks)
        if told != known:
            raise BrokenLawError(
                "counts", f"step {event.step} starts with (waiting, running, free blocks) {told}, known are {known}"
            )
        self.step, self.is_in_step = event.step, True
        self.scheduled = {}

    def finish_step(self, event: StepFinished) -> None:
        """All that was scheduled is computed."""
        if not self.is_in_step or event.step != self.step:
            raise BrokenLawError("step", f"step {event.step} finishes, but it has not started")
        self._advance(event.time)
        num_tokens = sum(self.scheduled.values())
        if event.tokens != num_tokens:
            raise BrokenLawError("counts", f"{event.tokens} tokens are told to be computed, scheduled are {num_tokens}")
        self._settle()
        self.is_in_step = False

    def _settle(self, before: RequestState | None = None) -> None:
        while self.unsettled and self.unsettled[0] is not before:
            self.unsettled.popleft().settle()

    # ---- blocks ----------------------------------------------------------------------------------------------

    def hit(self, event: PrefixHit) -> None:
        """Cached blocks head a waiting request's table; their tokens count as cached."""
        state = self._get(event.request)
        state.require("waiting", "hitting blocks")
        if state.block_table:
            raise BrokenLawError("hit", f"request {event.request} hits blocks, but has a table already")
        if event.tokens != len(event.blocks) * self.pool.block_size or event.tokens >= state.num_tokens:
            raise BrokenLawError("counts", f"request {event.request} hits {event.tokens} tokens in {event.blocks}")
        self.pool.hit(event.blocks)
        state.block_table = list(event.blocks)
        state.num_published_blocks = len(event.blocks)
        state.num_cached_tokens = event.tokens

    def allocate(self, event: BlocksAllocated) -> None:
        """Free blocks are appended to a table."""
        state = self._get(event.request)
        self.pool.allocate(event.blocks)
        state.block_table += event.blocks

    def evict(self, event: BlockEvicted) -> None:
        """The content of a free block is forgotten."""
        self.pool.evict(event.block, event.hash)

    def publish(self, event: BlocksHashed) -> None:
        """The next blocks of a table are shareable; the results of all scheduled before it are taken in."""
        state = self._get(event.request)
        self._settle(before=state)
        first = state.num_published_blocks
        last = first + len(event.blocks)
        num_full_blocks = (state.num_cached_tokens + state.num_scheduled_tokens) // self.pool.block_size
        if event.blocks != state.block_table[first:last] or len(event.hashes) != len(event.blocks):
            raise BrokenLawError(
                "publication",
                f"request {event.request} publishes blocks {event.blocks}, next in its table are "
                f"{state.block_table[first:last]}",
            )
        if not state.num_scheduled_tokens or last > num_full_blocks:
            raise BrokenLawError(
                "publication", f"request {event.request} publishes {last} blocks, full are {num_full_blocks}"
            )
        for block, block_hash in zip(event.blocks, event.hashes, strict=True):
            self.pool.publish(block, block_hash)
        state.num_published_blocks = last

    def free(self, event: BlocksFreed) -> None:
        """A table is given back."""
        state = self.releasing
        if state is None or state.request != event.request:
            raise BrokenLawError(
                "release", f"request {event.request} frees blocks, but was neither preempted nor ended"
            )
        state.check_release(event.blocks)
        self.pool.release(event.blocks)
        state.reset()
        self.releasing = None
        if state.status == "finished":
            self._retire(state)

    # ---- scheduling ------------------------------------------------------------------------------------------

    def admit(self, event: Admitted) -> None:
        """A waiting request runs from now on, however much of its prompt is missing."""
        state = self._get(event.request)
        state.require("waiting", "admitted")
        self._run(state)
        state.is_prefilling = True

    def _run(self, state: RequestState) -> None:
        self.waiting.remove(state.request)
        self.running.append(state.request)
        state.status = "running"

    def schedule_chunk(self, event: ChunkScheduled) -> None:
        """The next tokens of a prompt are computed; after the last of them the request runs."""
        state = self._get(event.request)
        if not state.is_prefilling:
            state.require("waiting", "prefilled")
        end = event.start + event.tokens
        is_within = event.tokens > 0 and event.remaining >= 0 and end + event.remaining == state.num_tokens
        if event.start != state.num_cached_tokens or not is_within:
            raise BrokenLawError(
                "chunk",
                f"request {event.request} computes {event.tokens} tokens from {event.start} with {event.remaining} "
                f"remaining, but {state.num_cached_tokens} of its {state.num_tokens} tokens are cached",
            )
        self._schedule(state, event.tokens)
        if event.remaining == 0:
            if state.is_prefilling:
                state.is_prefilling = False
            else:
                self._run(state)

    def schedule_decode(self, event: DecodeScheduled) -> None:
        """Each of these running requests computes one token."""
        for request in event.requests:
            state = self._get(request)
            state.require("running", "decoded")
            if state.is_prefilling:
                raise BrokenLawError("decode", f"request {request} is decoded before its prompt is complete")
            if state.num_cached_tokens != state.num_tokens - 1:
                raise BrokenLawError(
                    "decode",
                    f"request {request} decodes its newest token, but {state.num_cached_tokens} of its "
                    f"{state.num_tokens} tokens are cached",
                )
            self._schedule(state, 1)

    def _schedule(self, state: RequestState, num_tokens: int) -> None:
        state.schedule(num_tokens, self.pool.block_size)
        self.scheduled[state.request] = num_tokens
        self.unsettled.append(state)

    def hold(self, event: Held) -> None:
        """A request that was looked at and not scheduled stays where it is."""
        self._get(event.request)

    def preempt(self, event: Preempted) -> None:
        """A running request goes to the head of ``waiting``; its blocks are freed next."""
        state = self._get(event.request)
        state.require("running", "preempted")
        self._get(event.for_request).require("running", "preempted for")
        if state.num_scheduled_tokens:
            raise BrokenLawError("queue", f"request {event.request} is preempted in the step that computes it")
        state.check_release(event.blocks)
        told, known = (event.tokens_lost, event.count), (state.num_cached_tokens, state.num_preemptions + 1)
        if told != known:
            raise BrokenLawError(
                "counts", f"preempting {event.request} tells (tokens lost, count) {told}, known are {known}"
            )
        state.num_preemptions += 1
        state.status = "waiting"
        self.running.remove(event.request)
        self.waiting.appendleft(event.request)
        self.releasing = state

    def append_tokens(self, event: TokensAppended) -> None:
        """All results are taken in, and sampled tokens become part of their sequences."""
        self._settle()
        if len(event.requests) != len(event.tokens):
            raise BrokenLawError("counts", f"{len(event.tokens)} tokens for {len(event.requests)} requests")
        for request in event.requests:
            state = self._get(request)
            state.require("running", "given a token")
            if request not in self.scheduled or state.num_cached_tokens != state.num_tokens:
                raise BrokenLawError(
                    "append",
                    f"request {request} is given a token, but was not scheduled, or {state.num_cached_tokens} of "
                    f"its {state.num_tokens} tokens are cached",
                )
            state.num_tokens += 1

    def finish(self, event: RequestFinished) -> None:
        """A request leaves its queue; its blocks, if it has any, are freed next."""
        state = self._get(event.request)
        self._advance(event.time)
        (self.running if state.status == "running" else self.waiting).remove(event.request)
        state.status = "finished"
        state.finish_reason = event.reason
        state.num_scheduled_tokens = 0
        if state.block_table:
            self.releasing = state
        else:
            self._retire(state)

    def _retire(self, state: RequestState) -> None:
        del self.requests[state.request]
        self.finished.append(state)
