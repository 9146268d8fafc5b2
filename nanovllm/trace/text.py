"""A trace for reading: a line or a few for each step.

As in::

    + request B: a prompt of 64 tokens, at most 8 to generate
    step 3 prefill 20 tokens | B: hit 32 (blocks 5 6), new blocks 7 8, chunk 32..52 of 64, 12 remain | held C: no_blocks
        evicted block 7: its cached content is forgotten
        published block 7 of request B
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nanovllm.trace.events import (
    Admitted,
    AnyEvent,
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
from nanovllm.trace.words import blocks_named, chunk_range, counted, describe, listed


def to_text(events: Iterable[AnyEvent], *, times: bool = False) -> Iterator[str]:
    """The lines of the listing, without line ends, made as the events come. ``times``: with start and end of steps."""
    step, start = None, 0.0
    for event in events:
        if isinstance(event, StepStarted):
            step, start = _StepText(event.step), event.time
        elif isinstance(event, StepFinished) and step is not None:
            span = f" from {start:.6f} to {event.time:.6f} s" if times else ""
            yield from step.lines(f"{event.phase} {counted(event.tokens, 'token')}{span}")
            step = None
        elif step is not None:
            step.add(event)
        else:
            yield from _between_steps(event)
    if step is not None:
        yield from step.lines("(the trace ends here)")


def _between_steps(event: AnyEvent) -> Iterator[str]:
    if isinstance(event, TraceStarted):
        yield _heading(event)
        if event.facts:
            yield f"on {', '.join(f'{_in_words(name)} {value}' for name, value in event.facts.items())}"
    elif isinstance(event, RequestAdded):
        prompt = counted(event.prompt_tokens, "token")
        yield f"+ request {event.request}: a prompt of {prompt}, at most {event.max_tokens} to generate"
    elif isinstance(event, RequestRejected):
        needs = f", needs {event.needed_blocks} of {event.num_blocks} blocks" if event.needed_blocks else ""
        yield f"! request {event.request} is refused: {event.reason}{needs}"
    elif isinstance(event, RequestFinished):
        yield f"- request {event.request} ends: {event.reason}"
    elif isinstance(event, BlocksFreed):
        yield f"- request {event.request} frees {blocks_named(event.blocks)}"


def _in_words(name: str) -> str:
    return name.replace("_", " ")


def _heading(header: TraceStarted) -> str:
    model = f" with {header.model}" if header.model else ""
    options = ", ".join(f"{name} {value}" for name, value in header.config.items())
    return f"run on backend {header.backend}{model}, policy {header.policy}: {options}"


class _StepText:
    """Collects what is said of one step."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._requests: dict[RequestId, list[str]] = {}
        self._parts: list[str] = []
        self._notes: list[str] = []

    def add(self, event: AnyEvent) -> None:
        """Take in an event of the step."""
        if (tell := _TELLERS.get(type(event))) is not None:
            tell(self, event)
        else:
            self._notes += _between_steps(event)

    def lines(self, summary: str) -> Iterator[str]:
        """The step in words, beginning with a line of what was scheduled."""
        requests = (f"{request}: {', '.join(parts)}" for request, parts in self._requests.items())
        yield " | ".join([f"step {self._step} {summary}", *requests, *self._parts])
        yield from (f"    {note}" for note in self._notes)

    def _of(self, request: RequestId, part: str) -> None:
        self._requests.setdefault(request, []).append(part)

    def _hit(self, event: PrefixHit) -> None:
        self._of(event.request, f"hit {event.tokens} ({blocks_named(event.blocks)})")

    def _allocate(self, event: BlocksAllocated) -> None:
        self._of(event.request, f"new {blocks_named(event.blocks)}")

    def _admit(self, event: Admitted) -> None:
        self._of(event.request, "admitted")

    def _schedule_chunk(self, event: ChunkScheduled) -> None:
        self._of(event.request, f"chunk {chunk_range(event)}")

    def _schedule_decode(self, event: DecodeScheduled) -> None:
        self._parts.append(f"decode {listed(event.requests)}")

    def _hold(self, event: Held) -> None:
        self._parts.append(f"held {event.request}: {event.reason}")

    def _evict(self, event: BlockEvicted) -> None:
        self._notes.append(f"{describe(event)}: its cached content is forgotten")

    def _preempt(self, event: Preempted) -> None:
        often = f" ({_ordinal(event.count)} time)" if event.count > 1 else ""
        self._notes.append(f"{describe(event)}{often}: loses the KV of {counted(event.tokens_lost, 'token')}")

    def _publish(self, event: BlocksHashed) -> None:
        self._notes.append(describe(event))

    def _append_tokens(self, event: TokensAppended) -> None:
        pairs = [f"{request} gets {token}" for request, token in zip(event.requests, event.tokens, strict=False)]
        self._notes.append(f"tokens: {listed(pairs, ', ')}")

    def _finish(self, event: RequestFinished) -> None:
        self._notes.append(f"request {event.request} ends: {event.reason}")

    def _free(self, event: BlocksFreed) -> None:
        """Blocks are freed right after the preemption or the end that is the reason: one line tells both."""
        why = f"{self._notes.pop()}, frees" if self._notes else f"request {event.request} frees"
        self._notes.append(f"{why} {blocks_named(event.blocks)}")


_TELLERS: dict[type, Callable[[Any, Any], None]] = {
    PrefixHit: _StepText._hit,
    BlocksAllocated: _StepText._allocate,
    Admitted: _StepText._admit,
    ChunkScheduled: _StepText._schedule_chunk,
    DecodeScheduled: _StepText._schedule_decode,
    Held: _StepText._hold,
    BlockEvicted: _StepText._evict,
    Preempted: _StepText._preempt,
    BlocksHashed: _StepText._publish,
    TokensAppended: _StepText._append_tokens,
    RequestFinished: _StepText._finish,
    BlocksFreed: _StepText._free,
}


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
