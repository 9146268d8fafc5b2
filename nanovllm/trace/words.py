"""Events in words, as what the engine did: "preempted request 3 for 1"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)

_MOST_LISTED = 12


def listed(items: Sequence[object], separator: str = " ") -> str:
    """Items side by side; of a long list the first ones and how many more there are."""
    shown = separator.join(map(str, items[:_MOST_LISTED]))
    rest = len(items) - _MOST_LISTED
    return f"{shown} and {rest} more" if rest > 0 else shown


def counted(count: int, noun: str) -> str:
    """``1 token``, ``2 tokens``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def blocks_named(blocks: Sequence[int]) -> str:
    """``block 3``, ``blocks 3 4``."""
    return f"block{'' if len(blocks) == 1 else 's'} {listed(blocks)}"


def chunk_range(event: ChunkScheduled) -> str:
    """``32..52 of 64, 12 remain``: the first token, the one after the last, how many there are."""
    end = event.start + event.tokens
    rest = f", {event.remaining} remain" if event.remaining else ""
    return f"{event.start}..{end} of {end + event.remaining}{rest}"


_CLAUSES: dict[type, Callable[[Any], str]] = {
    TraceStarted: lambda e: f"started on backend {e.backend} with policy {e.policy}",
    RequestAdded: lambda e: (
        f"took in request {e.request} ({counted(e.prompt_tokens, 'prompt token')}, at most {e.max_tokens} to generate)"
    ),
    RequestRejected: lambda e: f"refused request {e.request} ({e.reason})",
    StepStarted: lambda e: (
        f"started step {e.step} with {e.waiting} waiting, {e.running} running, {counted(e.free_blocks, 'free block')}"
    ),
    PrefixHit: lambda e: f"found {e.tokens} tokens of request {e.request} in the cache ({blocks_named(e.blocks)})",
    BlocksAllocated: lambda e: f"gave request {e.request} {blocks_named(e.blocks)}",
    BlockEvicted: lambda e: f"evicted block {e.block}",
    Admitted: lambda e: f"admitted request {e.request}",
    ChunkScheduled: lambda e: (
        f"scheduled tokens {e.start}..{e.start + e.tokens} of request {e.request}'s {e.start + e.tokens + e.remaining}"
    ),
    DecodeScheduled: lambda e: f"scheduled a decode of {counted(len(e.requests), 'request')}",
    Preempted: lambda e: f"preempted request {e.request} for {e.for_request}",
    Held: lambda e: f"held request {e.request} ({e.reason})",
    BlocksHashed: lambda e: f"published {blocks_named(e.blocks)} of request {e.request}",
    TokensAppended: lambda e: f"gave a token to {counted(len(e.requests), 'request')}",
    RequestFinished: lambda e: f"ended request {e.request} ({e.reason})",
    BlocksFreed: lambda e: f"freed {blocks_named(e.blocks)} of request {e.request}",
    StepFinished: lambda e: f"finished step {e.step} ({e.phase}, {counted(e.tokens, 'token')})",
}


def describe(event: AnyEvent) -> str:
    """One event as a clause in the past tense; its subject is the engine."""
    return _CLAUSES[type(event)](event)
