"""How each kind of event stands in a part: which values of it are written, and in which coding.

A kind of event may have several forms: written in full, or without what a reader foresees (see ``foresight``).
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

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
)
from nanovllm.trace.files.compact.columns import (
    FLOAT,
    HASH,
    HASHES,
    INT,
    INTS,
    LENGTH,
    OPTIONAL_FLOAT,
    WORD,
    WORDS,
    Coding,
)


class Form(IntEnum):
    """The number of a form in a part. Those of older files keep theirs."""

    REQUEST_ADDED = 0
    REQUEST_REJECTED = auto()
    STEP_STARTED = auto()
    STEP_STARTED_FORESEEN = auto()
    """At the time at which the last step was finished."""
    PREFIX_HIT = auto()
    BLOCKS_ALLOCATED = auto()
    BLOCKS_ALLOCATED_FORESEEN = auto()
    """The blocks at the head of the free list."""
    BLOCKS_EVICTED_AND_ALLOCATED = auto()
    """The same; and before it a ``block_evicted`` for each of them that held content."""
    BLOCK_EVICTED = auto()
    ADMITTED = auto()
    CHUNK_SCHEDULED = auto()
    DECODE_SCHEDULED = auto()
    DECODE_SCHEDULED_FORESEEN = auto()
    """All that run."""
    PREEMPTED = auto()
    PREEMPTED_FORESEEN = auto()
    """Its table, backwards."""
    HELD = auto()
    BLOCKS_HASHED = auto()
    BLOCKS_HASHED_FORESEEN = auto()
    """The blocks of its table behind those that were hashed before."""
    TOKENS_APPENDED = auto()
    TOKENS_APPENDED_FORESEEN = auto()
    """A token for each that decoded in this step, then for each whose last chunk was computed."""
    REQUEST_FINISHED = auto()
    BLOCKS_FREED = auto()
    BLOCKS_FREED_FORESEEN = auto()
    """Its table, backwards."""
    STEP_FINISHED = auto()
    STEP_FINISHED_FORESEEN = auto()
    """At its start and what host and device took together."""


class Layout(NamedTuple):
    """What is written of each event of one form."""

    event_type: type[AnyEvent]
    columns: dict[str, Coding]
    """By field; a field that is not here is foreseen."""


def _in_full(event_type: type[AnyEvent], **columns: Coding) -> Layout:
    assert tuple(columns) == event_type.__struct_fields__, f"{event_type.__name__} has other fields"
    return Layout(event_type, columns)


def _foreseen(event_type: type[AnyEvent], **columns: Coding) -> Layout:
    return Layout(event_type, columns)


LAYOUT: dict[int, Layout] = {
    Form.REQUEST_ADDED: _in_full(
        RequestAdded, request=WORD, time=FLOAT, arrival=FLOAT, prompt_tokens=INT, max_tokens=INT, priority=INT
    ),
    Form.REQUEST_REJECTED: _in_full(
        RequestRejected, request=WORD, time=FLOAT, reason=WORD, needed_blocks=INT, num_blocks=INT
    ),
    Form.STEP_STARTED: _in_full(StepStarted, step=INT, time=FLOAT, waiting=INT, running=INT, free_blocks=INT),
    Form.STEP_STARTED_FORESEEN: _foreseen(StepStarted, step=INT, waiting=INT, running=INT, free_blocks=INT),
    Form.PREFIX_HIT: _in_full(PrefixHit, request=WORD, blocks=INTS, tokens=INT),
    Form.BLOCKS_ALLOCATED: _in_full(BlocksAllocated, request=WORD, blocks=INTS),
    Form.BLOCKS_ALLOCATED_FORESEEN: _foreseen(BlocksAllocated, request=WORD, blocks=LENGTH),
    Form.BLOCKS_EVICTED_AND_ALLOCATED: _foreseen(BlocksAllocated, request=WORD, blocks=LENGTH),
    Form.BLOCK_EVICTED: _in_full(BlockEvicted, block=INT, hash=HASH),
    Form.ADMITTED: _in_full(Admitted, request=WORD),
    Form.CHUNK_SCHEDULED: _in_full(ChunkScheduled, request=WORD, start=INT, tokens=INT, remaining=INT),
    Form.DECODE_SCHEDULED: _in_full(DecodeScheduled, requests=WORDS),
    Form.DECODE_SCHEDULED_FORESEEN: _foreseen(DecodeScheduled),
    Form.PREEMPTED: _in_full(Preempted, request=WORD, for_request=WORD, blocks=INTS, tokens_lost=INT, count=INT),
    Form.PREEMPTED_FORESEEN: _foreseen(Preempted, request=WORD, for_request=WORD, tokens_lost=INT, count=INT),
    Form.HELD: _in_full(Held, request=WORD, reason=WORD),
    Form.BLOCKS_HASHED: _in_full(BlocksHashed, request=WORD, blocks=INTS, hashes=HASHES),
    Form.BLOCKS_HASHED_FORESEEN: _foreseen(BlocksHashed, request=WORD, hashes=HASHES),
    Form.TOKENS_APPENDED: _in_full(TokensAppended, requests=WORDS, tokens=INTS),
    Form.TOKENS_APPENDED_FORESEEN: _foreseen(TokensAppended, tokens=INTS),
    Form.REQUEST_FINISHED: _in_full(RequestFinished, request=WORD, time=FLOAT, reason=WORD),
    Form.BLOCKS_FREED: _in_full(BlocksFreed, request=WORD, blocks=INTS),
    Form.BLOCKS_FREED_FORESEEN: _foreseen(BlocksFreed, request=WORD),
    Form.STEP_FINISHED: _in_full(
        StepFinished, step=INT, time=FLOAT, phase=WORD, tokens=INT, host=OPTIONAL_FLOAT, device=OPTIONAL_FLOAT
    ),
    Form.STEP_FINISHED_FORESEEN: _foreseen(StepFinished, step=INT, phase=WORD, tokens=INT, host=FLOAT, device=FLOAT),
}
"""By form. What a reader gets of a column of ``LENGTH`` is the length alone."""

FORMS: dict[type[AnyEvent], Form] = {
    LAYOUT[form].event_type: form for form in Form if not form.name.endswith("_FORESEEN") and "_AND_" not in form.name
}
"""The form in which nothing is left out of an event."""
