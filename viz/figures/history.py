"""A run as columns and lifelines: what all figures are drawn from. Made in one pass of the replayer over the events.

Everything is placed by *position*: 0 for the first step of the trace, 1 for the next. (Step numbers may leave gaps.)
What is told of a step is how things stand **while it computes**: after its decisions, before its results are taken in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent, RequestId, TraceStarted
from nanovllm.trace.files.completeness import why_unfinished
from nanovllm.trace.jsonl import Trace
from viz import palette
from viz.palette import Look

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Activity(Enum):
    """What a request does in a step."""

    WAITING = palette.WAITING
    HELD = palette.HELD
    PREFILL = palette.PREFILL
    DECODE = palette.DECODE
    IDLE = palette.IDLE
    PREEMPTED = palette.PREEMPTED

    @property
    def look(self) -> Look:
        """How it is drawn."""
        return self.value


@dataclass(frozen=True)
class Steps:
    """The steps, one entry each: step numbers, times in seconds, then counts while the step computes."""

    number: IntArray
    start_s: FloatArray
    end_s: FloatArray
    is_idle_after: BoolArray
    """Whether no request was left when the step had ended."""
    waiting: IntArray
    running: IntArray
    in_use_blocks: IntArray
    cached_blocks: IntArray
    """Free, with content that can be reused."""
    prefill_tokens: IntArray
    decode_tokens: IntArray
    preemptions: IntArray

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True)
class Chunk:
    """A part of a prompt, computed in the step at ``position``: tokens ``[start, start + tokens)``."""

    position: int
    start: int
    tokens: int
    remaining: int


@dataclass(frozen=True)
class Span:
    """A request does the same from ``first`` to ``last``, both included."""

    activity: Activity
    first: int
    last: int


@dataclass
class Lifeline:
    """One request from its arrival to its end."""

    request: RequestId
    arrival_s: float
    num_prompt_tokens: int
    max_tokens: int
    changes: list[tuple[int, Activity]] = field(default_factory=list)
    """(position, what it does from there on), in order."""
    chunks: list[Chunk] = field(default_factory=list)
    hits: list[tuple[int, int]] = field(default_factory=list)
    """(position, tokens reused) of each prefix hit."""
    preemptions: list[int] = field(default_factory=list)
    """The positions in which it was preempted."""
    holds: list[tuple[int, int, str]] = field(default_factory=list)
    """(first position, last position, reason) of each time in which it was looked at and not scheduled."""
    end: int | None = None
    """The position after its last one; None if the trace ends before it does."""
    finish_reason: str | None = None

    def spans(self, num_steps: int) -> list[Span]:
        """What it did, without gaps; up to the end of a trace of ``num_steps`` if it has no end of its own."""
        end = num_steps if self.end is None else self.end
        starts = [position for position, _ in self.changes]
        stops = [*starts[1:], end]
        return [
            Span(activity, first, stop - 1)
            for (first, activity), stop in zip(self.changes, stops, strict=True)
            if first < stop
        ]


FREE, CACHED, SHARED = -1, -2, -3
"""What ``BlockChanges.owner`` says of a block that is not held by just one request."""


@dataclass(frozen=True)
class BlockChanges:
    """Who holds which block, one entry a change, in order: from ``position`` on, ``owner`` holds ``block``.

    ``owner`` is an index into ``History.requests``, or ``FREE``, ``CACHED`` or ``SHARED``.
    """

    position: IntArray
    block: IntArray
    owner: IntArray


@dataclass(frozen=True)
class History:
    """A run, ready to be drawn."""

    source: str
    header: TraceStarted
    steps: Steps
    requests: list[Lifeline]
    """In the order in which they were handed over."""
    num_rejected: int
    blocks: BlockChanges
    problem: str | None
    """In words that every figure of it bears: that the trace is incomplete, or contradicts itself where it stops."""
    label: str = ""
    """What tells this run from another in the same figure."""

    def title(self, text: str) -> str:
        """A title with the run's label, if it has one."""
        return f"{self.label}: {text}" if self.label else text

    @property
    def num_blocks(self) -> int:
        """Size of the KV pool."""
        return int(self.header.config["num_blocks"])

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return int(self.header.config["block_size"])

    def option(self, name: str) -> int | None:
        """A whole number from the header's config, None if it is not told."""
        value = self.header.config.get(name)
        return value if isinstance(value, int) else None


Source = Trace | Sequence[AnyEvent]
"""What figures are drawn from: a trace, or its events."""


def events_of(source: Source) -> tuple[str, Sequence[AnyEvent]]:
    """The events of a source, and what errors call it. Raises ``TraceError`` if there are none."""
    name, events = (source.path, source.events) if isinstance(source, Trace) else ("events", source)
    if not events:
        raise TraceError(name, "is empty: a trace begins with a line of type trace_started")
    return name, events


def problem_of(source: Source) -> str | None:
    """``incomplete:`` and what is missing at the end of a trace; None if it goes to the end of its run."""
    if not isinstance(source, Trace):
        problem = why_unfinished(source)
    else:
        problem = None if source.problem is None else without_place(source.problem, source.path)
    return None if problem is None else f"incomplete: {problem}"


def without_place(message: str, path: str) -> str:
    """What is wrong, without the file and the line in front: a figure does not need them."""
    place, _, sentence = message.removeprefix(f"{path}:").partition(": ")
    return sentence if message.startswith(f"{path}:") and place.isdecimal() else message
