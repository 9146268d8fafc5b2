"""A whole run of the engine on the hash backend, and what a test wants to know of it, taken from its events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from nanovllm.config import Config
from nanovllm.engine.block_manager import BlockManager, HashFunction
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    DecodeScheduled,
    Event,
    Held,
    Preempted,
    PrefixHit,
    RequestFinished,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from tests.fakes import LARGE_VOCABULARY, DeferredHashBackend

Kind = TypeVar("Kind", bound=Event)


@dataclass
class Step:
    """One step, as its events tell it. ``chunks``: (request, tokens cached before, tokens scheduled)."""

    index: int
    free_blocks: int
    phase: str = ""
    num_tokens: int = 0
    chunks: list[tuple[RequestId, int, int]] = field(default_factory=list)
    decoded: list[RequestId] = field(default_factory=list)
    preempted: list[RequestId] = field(default_factory=list)
    held: list[tuple[RequestId, str]] = field(default_factory=list)
    finished: list[RequestId] = field(default_factory=list)


def steps_of(events: Iterable[AnyEvent]) -> list[Step]:
    """The steps of a run. Events between steps (arrivals, aborts) are left out."""
    steps: list[Step] = []
    is_open = False
    for event in events:
        if isinstance(event, StepStarted):
            steps.append(Step(event.step, event.free_blocks))
        elif is_open and isinstance(event, RequestFinished):
            steps[-1].finished.append(event.request)
        elif isinstance(event, ChunkScheduled):
            steps[-1].chunks.append((event.request, event.start, event.tokens))
        elif isinstance(event, DecodeScheduled):
            steps[-1].decoded += event.requests
        elif isinstance(event, Preempted):
            steps[-1].preempted.append(event.request)
        elif isinstance(event, Held):
            steps[-1].held.append((event.request, event.reason))
        elif isinstance(event, StepFinished):
            steps[-1].phase, steps[-1].num_tokens = event.phase, event.tokens
        if isinstance(event, (StepStarted, StepFinished)):
            is_open = isinstance(event, StepStarted)
    return steps


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    engine: Engine
    events: list[AnyEvent]

    @cached_property
    def steps(self) -> list[Step]:
        return steps_of(self.events)

    @property
    def num_computed_tokens(self) -> int:
        return sum(step.num_tokens for step in self.steps)

    @property
    def num_free_blocks(self) -> int:
        """At the end of the run."""
        return self.engine.scheduler.block_manager.num_free_blocks

    @property
    def preemptions(self) -> list[tuple[int, RequestId]]:
        """(step, request) in order."""
        return [(step.index, request) for step in self.steps for request in step.preempted]

    @cached_property
    def completions(self) -> dict[RequestId, list[int]]:
        """The tokens generated for each request that got any, also before it was aborted."""
        completions: dict[RequestId, list[int]] = defaultdict(list)
        for event in self.events_of(TokensAppended):
            for request, token in zip(event.requests, event.tokens, strict=True):
                completions[request].append(token)
        return dict(completions)

    @property
    def finish_reasons(self) -> dict[RequestId, str]:
        return {event.request: event.reason for event in self.events_of(RequestFinished)}

    @property
    def rejections(self) -> dict[RequestId, str]:
        return {event.request: event.reason for event in self.events_of(RequestRejected)}

    @property
    def hit_tokens(self) -> list[tuple[RequestId, int]]:
        """(request, tokens found in the cache) of each successful look-up, in order."""
        return [(event.request, event.tokens) for event in self.events_of(PrefixHit)]

    def events_of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def chunks_of(self, request: RequestId) -> list[tuple[int, str]]:
        """(step, "cached+scheduled") of each prefill chunk of a request."""
        return [
            (step.index, f"{cached}+{scheduled}")
            for step in self.steps
            for name, cached, scheduled in step.chunks
            if name == request
        ]

    def steps_with_token(self, request: RequestId) -> list[int]:
        """The steps that gave a request a token."""
        steps: list[int] = []
        index = -1
        for event in self.events:
            if isinstance(event, StepStarted):
                index = event.step
            elif isinstance(event, TokensAppended) and request in event.requests:
                steps.append(index)
        return steps


def run_to_end(
    config: Config,
    requests: Iterable[Request],
    *,
    vocab_size: int = LARGE_VOCABULARY,
    hash_function: HashFunction | None = None,
    max_steps: int = 10_000,
) -> Run:
    """Run ``requests``, in order of arrival, to the end on a hash backend with the pool that ``config`` names: one step
    after the other, or ahead if the config says so."""
    events: list[AnyEvent] = []
    backend = DeferredHashBackend(config.num_kvcache_blocks, config.kvcache_block_size, vocab_size=vocab_size)
    engine = Engine(config, backend, clock=VirtualClock(), emit=events.append)
    if hash_function is not None:
        engine.scheduler.block_manager = BlockManager(
            config.num_kvcache_blocks,
            config.kvcache_block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            hash_function=hash_function,
            emit=engine._emit,
        )
    for num_steps, _ in enumerate(engine.run(requests), start=1):
        assert num_steps <= max_steps, f"the run is not over after {max_steps} steps"
    return Run(engine, events)
