"""The listing of a trace, word by word."""

from __future__ import annotations

from typing import get_args

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
from nanovllm.trace.text import to_text
from nanovllm.trace.words import describe
from tests.trace.runs import preempting_run

EVENTS: list[AnyEvent] = [
    TraceStarted(1, "cpu", "prefill_first", "tiny", {"block_size": 16, "num_blocks": 64}),
    RequestAdded("B", 0.0, 0.0, 64, 8),
    RequestRejected("D", 0.0, "pool_too_small", 70, 64),
    RequestRejected("E", 0.0, "too_long", 0, 0),
    StepStarted(3, 0.25, 2, 1, 9),
    PrefixHit("B", [5, 6], 32),
    BlockEvicted(7, "a" * 16),
    BlocksAllocated("B", [7, 8]),
    ChunkScheduled("B", 32, 20, 12),
    Held("C", "no_blocks"),
    BlocksHashed("B", [7], ["b" * 16]),
    StepFinished(3, 0.5, "prefill", 20),
    RequestFinished("F", 0.5, "aborted"),
    BlocksFreed("F", [3]),
    StepStarted(4, 0.5, 2, 14, 0),
    Preempted("N", "A", [9, 8], 31, 2),
    BlocksFreed("N", [9, 8]),
    BlocksAllocated("A", [9]),
    Admitted("A"),
    DecodeScheduled(list("ABCDEFGHIJKLM")),
    RequestAdded("Z", 0.5, 0.5, 1, 1),
    TokensAppended(["A", "B"], [17, 5]),
    RequestFinished("A", 0.7, "length"),
    BlocksFreed("A", [9, 2]),
]

LISTING = """\
run on backend cpu with tiny, policy prefill_first: block_size 16, num_blocks 64
+ request B: a prompt of 64 tokens, at most 8 to generate
! request D is refused: pool_too_small, needs 70 of 64 blocks
! request E is refused: too_long
step 3 prefill 20 tokens | B: hit 32 (blocks 5 6), new blocks 7 8, chunk 32..52 of 64, 12 remain | held C: no_blocks
    evicted block 7: its cached content is forgotten
    published block 7 of request B
- request F ends: aborted
- request F frees block 3
step 4 (the trace ends here) | A: new block 9, admitted | decode A B C D E F G H I J K L and 1 more
    preempted request N for A (2nd time): loses the KV of 31 tokens, frees blocks 9 8
    + request Z: a prompt of 1 token, at most 1 to generate
    tokens: A gets 17, B gets 5
    request A ends: length, frees blocks 9 2
"""


def test_each_event_is_told() -> None:
    assert list(to_text(EVENTS)) == LISTING.splitlines()


def test_each_event_has_a_clause() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(AnyEvent))
    clauses = [describe(event) for event in EVENTS]
    assert clauses[:2] == [
        "started on backend cpu with policy prefill_first",
        "took in request B (64 prompt tokens, at most 8 to generate)",
    ]
    assert "found 32 tokens of request B in the cache (blocks 5 6)" in clauses
    assert "scheduled tokens 32..52 of request B's 64" in clauses


def test_times_are_told_if_wanted() -> None:
    lines = list(to_text(EVENTS, times=True))
    assert lines[4].startswith("step 3 prefill 20 tokens from 0.250000 to 0.500000 s | B: ")


def test_a_piece_of_a_trace_can_be_listed() -> None:
    events = preempting_run()
    start = next(i for i, event in enumerate(events) if isinstance(event, StepStarted) and event.step == 4)
    assert list(to_text(events[start:]))[:2] == [
        "step 4 decode 1 token | 0: new block 3 | decode 0",
        "    preempted request 1 for 0: loses the KV of 7 tokens, frees blocks 3 2",
    ]
