"""A few requests through the real engine, with the scheduler and the block manager that one likes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from nanovllm.config import Config
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.by_step import by_step
from nanovllm.trace.check import check
from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    Preempted,
    RequestId,
    RequestRejected,
    StepFinished,
    TokensAppended,
)
from nanovllm.trace.state.laws import Violation
from nanovllm.trace.text import to_text
from sim.museum.memory import Misread, WatchedMemory

Line = tuple[int | list[int], int, int]
"""A request: its prompt (or the length of one that no other request shares), ``max_tokens``, arrival step."""

_NOT_OVER = "not over after"
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class MuseumRun:
    """How a run went, and what it came to."""

    events: list[AnyEvent]
    misreads: list[Misread]
    """Who built upon KV that is not its own, step by step."""
    failure: str | None
    """Why the run did not come to its end: what the engine died of, or that it would have gone on for ever."""

    @property
    def outcome(self) -> str:
        """``ends``, ``dies`` or ``never ends``."""
        if self.failure is None:
            return "ends"
        return "never ends" if self.failure.startswith(_NOT_OVER) else "dies"

    @property
    def num_steps(self) -> int:
        """Steps that were finished."""
        return len(self.step_tokens)

    @property
    def step_tokens(self) -> list[int]:
        """Tokens that each step computed."""
        return [event.tokens for event in self.events if isinstance(event, StepFinished)]

    @property
    def num_computed_tokens(self) -> int:
        """Tokens that all steps computed."""
        return sum(self.step_tokens)

    @property
    def preemptions(self) -> list[tuple[int, RequestId]]:
        """(step, request) of each."""
        return [(step, event.request) for step, event in self._in_steps() if isinstance(event, Preempted)]

    @property
    def refused(self) -> list[RequestId]:
        """The requests that were not let in."""
        return [event.request for event in self.events if isinstance(event, RequestRejected)]

    @property
    def violations(self) -> list[Violation]:
        """The laws that the trace breaks."""
        return check(self.events)

    def chunks_of(self, request: RequestId) -> list[tuple[int, str]]:
        """(step, "cached+scheduled") of each prefill chunk of a request."""
        return [
            (step, f"{event.start}{event.tokens:+}")
            for step, event in self._in_steps()
            if isinstance(event, ChunkScheduled) and event.request == request
        ]

    def token_steps_of(self, request: RequestId) -> list[int]:
        """The steps that gave a request a token."""
        return [
            step for step, event in self._in_steps() if isinstance(event, TokensAppended) and request in event.requests
        ]

    def listing(self, first_step: int = 0, last_step: int | None = None) -> str:
        """What the trace says of these steps (None: to the end), in lines to read."""
        chosen = [
            event for step, event in self._in_steps() if step >= first_step and (last_step is None or step <= last_step)
        ]
        return "\n".join(to_text(chosen))

    def _in_steps(self) -> Iterator[tuple[int, AnyEvent]]:
        """The events but for the header, each with its step."""
        for step, events in by_step(self.events):
            for event in events:
                yield step, event


def run(
    lines: Iterable[Line],
    *,
    scheduler: type[Scheduler] | None = None,
    block_manager: type[BlockManager] | None = None,
    max_steps: int = 100,
    block_size: int = 4,
    num_blocks: int = 64,
    max_num_batched_tokens: int = 64,
    max_num_seqs: int = 8,
    **options: object,
) -> MuseumRun:
    """Run requests called A, B, C ... to their end, or for ``max_steps`` steps. No token ends a request.

    ``scheduler``, ``block_manager``: instead of our own. ``options`` are further fields of ``Config``. What the engine
    dies of is caught: a wrong rule may break anything.
    """
    config = Config.from_options(
        kvcache_block_size=block_size,
        num_kvcache_blocks=num_blocks,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        **options,
    )
    events: list[AnyEvent] = []
    clock = VirtualClock()
    memory = WatchedMemory(num_blocks, block_size, clock)
    engine = memory.engine = Engine(config, memory, clock=clock, emit=events.append, scheduler=scheduler)
    if block_manager is not None:
        engine.scheduler.block_manager = block_manager(
            num_blocks, block_size, enable_prefix_caching=config.enable_prefix_caching, emit=events.append
        )
        events[0] = msgspec.structs.replace(events[0], policy=f"{config.policy} with {block_manager.__name__}")
    return MuseumRun(events, memory.misreads, _drive(engine, lines, max_steps))


def side_by_side(
    lines: Sequence[Line], rule: type[Scheduler] | type[BlockManager] | str, **options: Any
) -> tuple[MuseumRun, MuseumRun]:
    """The same requests twice: by our rules, and with ``rule`` instead: a scheduler, a block manager, or the name of
    another policy."""
    if isinstance(rule, str):
        return run(lines, **options), run(lines, policy=rule, **options)
    if issubclass(rule, Scheduler):
        return run(lines, **options), run(lines, scheduler=rule, **options)
    return run(lines, **options), run(lines, block_manager=rule, **options)


def _drive(engine: Engine, lines: Iterable[Line], max_steps: int) -> str | None:
    """Why the run did not come to its end, if it did not."""
    steps = engine.run(_requests(lines))
    try:
        for _ in range(max_steps):
            if next(steps, None) is None:
                return None
    except (AssertionError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    left = [str(seq.request_id) for seq in engine.scheduler.sequences.values()]
    return f"{_NOT_OVER} {max_steps} steps: {', '.join(left)}" if left else None


def _requests(lines: Iterable[Line]) -> Iterator[Request]:
    for index, (prompt, max_tokens, arrival_step) in enumerate(lines):
        yield Request(
            request_id=_NAMES[index],
            prompt_token_ids=_own_tokens(index, prompt) if isinstance(prompt, int) else prompt,
            sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            arrival_step=arrival_step,
        )


def _own_tokens(owner: int, length: int) -> list[int]:
    """A prompt that no other request begins like."""
    return [1000 * (owner + 1) + position for position in range(length)]
