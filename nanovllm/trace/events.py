"""The events of a trace: everything an engine decides, one small frozen struct each. Read this file first.

Events stand in the order in which they happened. ``TraceStarted`` comes first; ``step`` counts from 0. Times
are seconds since the start on the backend's clock (virtual or real). They stand on arrivals, finishes and steps
only: whatever lies between a ``StepStarted`` and its ``StepFinished`` happened in that step. Two runs made the
same decisions if and only if their events are equal once headers and times are removed.

Each event describes one change of state that has just happened, completely: from the events alone, ``replay``
rebuilds queues, block tables, reference counts, free list and hash map as the engine has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

SCHEMA_VERSION = 2
"""Raised whenever a field changes its meaning, comes or goes. Traces of all versions from 1 on are read: they lack what
came since."""

RequestId = str | int
"""How a request is called: unique among those that have not ended."""


def _snake_case(class_name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag=_snake_case, forbid_unknown_fields=True):
    """Base of all events. In a file, ``type`` is the class name in snake case; ``SCHEMA_VERSION`` fixes the fields.

    Made without the garbage collector's book-keeping (``gc=False``): an event holds no cycles, and one is made
    for each decision.
    """

    TIME_FIELDS: ClassVar[tuple[str, ...]] = ()


class TraceStarted(Event, frozen=True, gc=False, omit_defaults=True):
    """The header: what ran, with which options. ``facts``: what the backend tells of itself (card, versions, cost model
    ...), by name; the same for equal runs on one machine. Left out of files if empty. Since schema 2."""

    schema: int
    backend: str
    policy: str
    model: str
    config: dict[str, Any]
    facts: dict[str, Any] = {}


class RequestAdded(Event, frozen=True, gc=False, omit_defaults=True):
    """A request was handed to the scheduler and stands at the tail of ``waiting``.

    ``arrival`` is when it really came, at or before ``time``; latencies count from it. ``priority``: the lower, the
    earlier, under the policy of that name. Left out of files if 0. Since schema 2.
    """

    TIME_FIELDS: ClassVar[tuple[str, ...]] = ("time", "arrival")
    request: RequestId
    time: float
    arrival: float
    prompt_tokens: int
    max_tokens: int
    priority: int = 0


class RequestRejected(Event, frozen=True, gc=False):
    """A request that can never run was refused. ``needed_blocks`` and ``num_blocks`` are 0 where blocks are not the
    reason."""

    TIME_FIELDS: ClassVar[tuple[str, ...]] = ("time",)
    request: RequestId
    time: float
    reason: str
    needed_blocks: int
    num_blocks: int


class StepStarted(Event, frozen=True, gc=False):
    """Before scheduling: lengths of the two queues and of the free list."""

    TIME_FIELDS: ClassVar[tuple[str, ...]] = ("time",)
    step: int
    time: float
    waiting: int
    running: int
    free_blocks: int


class PrefixHit(Event, frozen=True, gc=False):
    """Leading blocks were found in the cache: they head the request's table (ids in table order)."""

    request: RequestId
    blocks: list[int]
    tokens: int


class BlocksAllocated(Event, frozen=True, gc=False):
    """New blocks were taken from the head of the free list and appended to the request's table."""

    request: RequestId
    blocks: list[int]


class BlockEvicted(Event, frozen=True, gc=False):
    """A free block that still held cached content is about to be handed out: the content is forgotten."""

    block: int
    hash: str


class Admitted(Event, frozen=True, gc=False):
    """The request went from ``waiting`` to the tail of ``running`` with its first blocks. Told by policies in which a
    request runs from its first chunk on; by the others, its last chunk says it. Since schema 2."""

    request: RequestId


class ChunkScheduled(Event, frozen=True, gc=False):
    """Prefill: this step computes tokens ``[start, start + tokens)``. ``remaining`` > 0: more chunks follow; otherwise
    a request that still waits goes to the tail of ``running``."""

    request: RequestId
    start: int
    tokens: int
    remaining: int


class DecodeScheduled(Event, frozen=True, gc=False):
    """Decode: each of these requests computes the KV of its newest token. One event a step."""

    requests: list[RequestId]


class Preempted(Event, frozen=True, gc=False):
    """``request`` gives up its blocks so that ``for_request`` can go on, and stands at the head of ``waiting``.

    ``blocks`` in the order of release (a ``BlocksFreed`` with the same ids follows); ``tokens_lost``: tokens
    whose KV it gives up; ``count``: how often the request has been preempted, this time too.
    """

    request: RequestId
    for_request: RequestId
    blocks: list[int]
    tokens_lost: int
    count: int


class Held(Event, frozen=True, gc=False):
    """The head of ``waiting`` (or a running request) was looked at and not scheduled.

    ``reason``: ``no_slot`` (``max_num_seqs`` are resident), ``no_budget`` (the step's token budget is used up),
    ``no_blocks`` (the KV pool has no room), ``chunk_not_first`` (it does not fit the rest of the budget, and
    only the first of a step may be chunked); or another one, of a policy of one's own.
    """

    request: RequestId
    reason: str


class BlocksHashed(Event, frozen=True, gc=False):
    """The content of these blocks is now shareable. Hashes as 16 hex digits: 64 bits don't fit a JavaScript number."""

    request: RequestId
    blocks: list[int]
    hashes: list[str]


class TokensAppended(Event, frozen=True, gc=False):
    """The sampled tokens became part of their sequences. One event a step."""

    requests: list[RequestId]
    tokens: list[int]


class RequestFinished(Event, frozen=True, gc=False):
    """The request left its queue. ``reason``: ``eos``, ``stop``, ``length``, ``aborted`` or ``error``."""

    TIME_FIELDS: ClassVar[tuple[str, ...]] = ("time",)
    request: RequestId
    time: float
    reason: str


class BlocksFreed(Event, frozen=True, gc=False):
    """The request's table was released, in this order; a block that no other table holds joins the free list's tail."""

    request: RequestId
    blocks: list[int]


class StepFinished(Event, frozen=True, gc=False, omit_defaults=True):
    """After postprocess. ``phase``: ``prefill``, ``decode`` or ``mixed``; ``tokens``: how many the step computed
    (0: nothing could be scheduled, and the backend was not called).

    Two parts of the step's time, in seconds, None (and left out of files) if the backend does not tell them; since
    schema 2. ``host``: what the program took to decide, prepare and submit the step and to take in its tokens, without
    waiting for the device. ``device``: from the moment at which the device began with the step to its end. Where the
    program works one step ahead, much of ``host`` passes while the device computes the step before.
    """

    TIME_FIELDS: ClassVar[tuple[str, ...]] = ("time", "host", "device")
    step: int
    time: float
    phase: str
    tokens: int
    host: float | None = None
    device: float | None = None


AnyEvent = (
    TraceStarted
    | RequestAdded
    | RequestRejected
    | StepStarted
    | PrefixHit
    | BlocksAllocated
    | BlockEvicted
    | Admitted
    | ChunkScheduled
    | DecodeScheduled
    | Preempted
    | Held
    | BlocksHashed
    | TokensAppended
    | RequestFinished
    | BlocksFreed
    | StepFinished
)
"""The union that decoders use."""

Emit = Callable[[AnyEvent], object]
"""A listener: it is called with each event, in order."""
