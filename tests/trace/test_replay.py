"""What replay makes of events: the state after each, and a clear sentence for what cannot have happened."""

from __future__ import annotations

import pytest

from nanovllm.errors import ContradictionError, TraceError
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
from nanovllm.trace.replay import Replay
from nanovllm.trace.state.laws import REPLAYED_LAWS
from tests.trace.runs import header

HASH = "00000000000000aa"

# Four blocks of 4 tokens. Request a (6 tokens, 3 to generate) and b (3 tokens) are prefilled together, one token each.
RUN: list[AnyEvent] = [
    TraceStarted(1, "hand", "prefill_first", "", header(num_blocks=4)),
    RequestAdded("a", 0.0, 0.0, 6, 3),
    RequestAdded("b", 0.0, 0.0, 3, 3),
    StepStarted(0, 0.0, 2, 0, 4),
    BlocksAllocated("a", [0, 1]),
    ChunkScheduled("a", 0, 6, 0),
    BlocksAllocated("b", [2]),
    ChunkScheduled("b", 0, 3, 0),
    BlocksHashed("a", [0], [HASH]),
    TokensAppended(["a", "b"], [7, 8]),
    StepFinished(0, 1.0, "prefill", 9),
    StepStarted(1, 1.0, 0, 2, 1),
    DecodeScheduled(["a", "b"]),
    TokensAppended(["a", "b"], [7, 8]),
    StepFinished(1, 2.0, "decode", 2),
]
# Then a needs no block, b would: it is preempted here for the sake of the example.
PREEMPTED = [*RUN, StepStarted(2, 2.0, 0, 2, 1), Preempted("b", "a", [2], 4, 1)]
BEGUN = [
    *RUN[:4],
    BlocksAllocated("a", [0]),
    Admitted("a"),
    ChunkScheduled("a", 0, 2, 4),
    StepFinished(0, 1.0, "prefill", 2),
    StepStarted(1, 1.0, 1, 1, 3),
]
FREED = [*PREEMPTED, BlocksFreed("b", [2])]


def test_an_admitted_request_runs_from_its_first_chunk_on() -> None:
    replay = replayed(BEGUN)
    assert (list(replay.waiting), list(replay.running)) == (["b"], ["a"])
    state = replay.requests["a"]
    assert (state.status, state.is_prefilling, state.num_cached_tokens) == ("running", True, 2)
    for event in (BlocksAllocated("a", [1]), ChunkScheduled("a", 2, 4, 0), TokensAppended(["a"], [7])):
        replay.apply(event)
    assert (list(replay.running), state.is_prefilling, state.num_tokens) == (["a"], False, 7)


def replayed(events: list[AnyEvent]) -> Replay:
    replay = Replay()
    for event in events:
        replay.apply(event)
    return replay


def test_results_are_taken_in_request_by_request() -> None:
    replay = replayed(RUN[:9])  # up to blocks_hashed of a
    assert [replay.requests[name].num_cached_tokens for name in "ab"] == [0, 0]
    assert [replay.requests[name].num_scheduled_tokens for name in "ab"] == [6, 3]
    replay.apply(RUN[9])
    assert [replay.requests[name].num_cached_tokens for name in "ab"] == [6, 3]
    assert [replay.requests[name].num_tokens for name in "ab"] == [7, 4]
    assert [replay.requests[name].num_completion_tokens for name in "ab"] == [1, 1]


def test_hashing_the_second_takes_in_the_first() -> None:
    long_b = RequestAdded("b", 0.0, 0.0, 4, 3)
    events = [*RUN[:2], long_b, *RUN[3:7], ChunkScheduled("b", 0, 4, 0), RUN[8], BlocksHashed("b", [2], ["b" * 16])]
    replay = replayed(events)
    assert [replay.requests[name].num_cached_tokens for name in "ab"] == [6, 0]


def test_a_chunk_without_a_token_is_taken_in_at_the_end_of_the_step() -> None:
    events = [*RUN[:5], ChunkScheduled("a", 0, 3, 3), StepFinished(0, 1.0, "prefill", 3)]
    state = replayed(events).requests["a"]
    assert (state.status, state.num_cached_tokens, state.num_scheduled_tokens) == ("waiting", 3, 0)


def test_a_preempted_request_stands_at_the_head_of_waiting() -> None:
    replay = replayed([*FREED[:15], RequestAdded("c", 2.0, 2.0, 1, 1), StepStarted(2, 2.0, 1, 2, 1), *FREED[16:]])
    assert list(replay.waiting) == ["b", "c"]
    assert list(replay.running) == ["a"]
    state = replay.requests["b"]
    assert (state.status, state.num_tokens, state.num_cached_tokens, state.block_table) == ("waiting", 5, 0, [])
    assert list(replay.free_blocks) == [3, 2]
    assert replay.ref_counts == [1, 1, 0, 0]


def test_published_blocks_are_known_by_their_hash_in_order() -> None:
    replay = replayed(RUN[:9])
    assert replay.block_hashes == {0: HASH}
    assert replay.copies == {HASH: [0]}


def test_an_ended_request_moves_to_finished_when_its_blocks_are_freed() -> None:
    replay = replayed([*RUN, RequestFinished("a", 2.0, "aborted")])
    assert replay.requests["a"].status == "finished"
    assert replay.finished == []
    replay.apply(BlocksFreed("a", [1, 0]))
    assert list(replay.requests) == ["b"]
    assert [(state.request, state.finish_reason) for state in replay.finished] == [("a", "aborted")]
    assert list(replay.free_blocks) == [3, 1, 0]
    assert replay.pool.num_cached_free_blocks == 1


def test_a_request_without_blocks_ends_at_once_and_frees_its_id() -> None:
    replay = replayed([*RUN[:3], RequestFinished("b", 0.0, "aborted"), RequestAdded("b", 0.0, 0.0, 2, 2)])
    assert replay.requests["b"].num_prompt_tokens == 2
    assert [state.request for state in replay.finished] == ["b"]


def test_a_rejection_is_counted_and_changes_nothing() -> None:
    replay = replayed([*RUN, RequestRejected("c", 2.0, "too_long", 0, 0)])
    assert replay.num_rejected == 1
    assert list(replay.requests) == ["a", "b"]


FINISHED = [*RUN, RequestFinished("a", 2.0, "aborted"), BlocksFreed("a", [1, 0])]
HIT = [*FINISHED, RequestAdded("c", 2.0, 2.0, 6, 3), StepStarted(2, 2.0, 1, 1, 3)]  # free: 3, 1, 0 (content)
EVICTION = [*HIT, BlocksAllocated("b", [3, 1])]

CONTRADICTIONS: list[tuple[str, str, list[AnyEvent], AnyEvent]] = [
    ("header", "the first event is no trace_started", [], RUN[1]),
    ("header", "a second trace_started", RUN, RUN[0]),
    ("header", "config.num_blocks is None", [], TraceStarted(1, "", "", "", {"block_size": 4})),
    ("header", "config.block_size is 0", [], TraceStarted(1, "", "", "", header(block_size=0))),
    ("header", f"config.num_blocks is {10**12}", [], TraceStarted(1, "", "", "", header(num_blocks=10**12))),
    ("header", "config.num_blocks is True", [], TraceStarted(1, "", "", "", header(num_blocks=True))),
    ("time", "runs backwards, from 2.0 s to 1.5 s", RUN, StepStarted(2, 1.5, 0, 2, 1)),
    ("time", "runs backwards, from 2.0 s to 1.5 s", RUN, RequestAdded("c", 1.5, 1.5, 1, 1)),
    ("time", "runs backwards, from 0.0 s to -1.0 s", RUN[:1], RequestRejected("c", -1.0, "too_long", 0, 0)),
    ("step", "step 1 starts, but step 1 was before", RUN, StepStarted(1, 2.0, 0, 2, 1)),
    ("step", "step 1 starts, but step 0 is not finished", RUN[:10], StepStarted(1, 2.0, 0, 2, 1)),
    ("step", "step 2 finishes, but it has not started", RUN, StepFinished(2, 2.0, "decode", 0)),
    ("step", "step 1 finishes, but it has not started", RUN[:10], StepFinished(1, 2.0, "prefill", 9)),
    ("step", "decode_scheduled stands outside of a step", RUN, DecodeScheduled(["a"])),
    ("request", "request c is not there", RUN[:4], BlocksAllocated("c", [0])),
    ("request", "request c is not there", RUN[:4], Held("c", "no_slot")),
    ("request", "request a is not there", FINISHED, RequestFinished("a", 2.0, "aborted")),
    ("request", "request b is added, but one with this id has not ended", RUN, RequestAdded("b", 2.0, 2.0, 1, 1)),
    ("queue", "request a is prefilled, but it is running", RUN[:12], ChunkScheduled("a", 0, 1, 0)),
    ("queue", "request a is admitted, but it is running", RUN[:12], Admitted("a")),
    ("decode", "request a is decoded before its prompt is complete", BEGUN, DecodeScheduled(["a"])),
    ("chunk", "computes 2 tokens from 2 with 1 remaining", BEGUN, ChunkScheduled("a", 2, 2, 1)),
    ("queue", "request a is decoded, but it is waiting", RUN[:4], DecodeScheduled(["a"])),
    ("queue", "request a is preempted, but it is waiting", RUN[:4], Preempted("a", "b", [], 0, 1)),
    ("queue", "request b is preempted for, but it is waiting", RUN[:6], Preempted("a", "b", [1, 0], 0, 1)),
    ("queue", "request b is preempted in the step that computes it", RUN[:13], Preempted("b", "a", [2], 3, 1)),
    ("queue", "request b is given a token, but it is waiting", RUN[:6], TokensAppended(["b"], [1])),
    ("counts", r"\(2, 0, 3\), known are \(2, 0, 4\)", RUN[:3], StepStarted(0, 0.0, 2, 0, 3)),
    ("counts", "8 tokens are told to be computed, scheduled are 9", RUN[:10], StepFinished(0, 1.0, "prefill", 8)),
    ("counts", r"\(4, 2\), known are \(4, 1\)", PREEMPTED[:-1], Preempted("b", "a", [2], 4, 2)),
    ("counts", r"\(3, 1\), known are \(4, 1\)", PREEMPTED[:-1], Preempted("b", "a", [2], 3, 1)),
    ("counts", "1 tokens for 2 requests", RUN[:9], TokensAppended(["a", "b"], [7])),
    ("counts", "request c has no prompt", RUN[:3], RequestAdded("c", 0.0, 0.0, 0, 1)),
    ("counts", "request c hits 3 tokens", HIT, PrefixHit("c", [0], 3)),
    ("chunk", "computes 5 tokens from 1 with 0 remaining, but 0 of its 6", RUN[:5], ChunkScheduled("a", 1, 5, 0)),
    ("chunk", "computes 7 tokens from 0 with 0 remaining", RUN[:5], ChunkScheduled("a", 0, 7, 0)),
    ("chunk", "computes 7 tokens from 0 with -1 remaining", RUN[:5], ChunkScheduled("a", 0, 7, -1)),
    ("chunk", "computes 0 tokens", RUN[:5], ChunkScheduled("a", 0, 0, 6)),
    ("decode", "but 6 of its 6 tokens", [*RUN[:9], *RUN[10:12]], DecodeScheduled(["a"])),
    ("once_a_step", "request a is scheduled a second time", [*RUN[:5], ChunkScheduled("a", 0, 3, 3)], RUN[5]),
    ("coverage", "computes tokens up to 6, its table has slots for 0", RUN[:4], ChunkScheduled("a", 0, 6, 0)),
    ("append", "request a is given a token, but was not scheduled", RUN[:12], TokensAppended(["a"], [1])),
    ("append", "7 of its 8 tokens are cached", [*RUN[:12], *RUN[12:14]], TokensAppended(["a"], [1])),
    (
        "free_list",
        r"blocks \[1\] are allocated, but the free list begins with \[0\]",
        RUN[:4],
        BlocksAllocated("a", [1]),
    ),
    ("free_list", r"begins with \[0, 1, 2, 3\]", RUN[:4], BlocksAllocated("a", [0, 1, 2, 3, 4])),
    ("eviction", "block 0 is allocated with its cached content", EVICTION, BlocksAllocated("b", [0])),
    ("eviction", "of block 0 is evicted, but it holds 00000000000000aa", EVICTION, BlockEvicted(0, "b" * 16)),
    ("eviction", "of block 3 is evicted, but it holds nothing", HIT, BlockEvicted(3, HASH)),
    ("eviction", "block 0 is evicted, but 1 tables hold it", RUN[:12], BlockEvicted(0, HASH)),
    ("hit", "block 3 is hit, but holds no published content", HIT, PrefixHit("c", [3], 4)),
    ("hit", "one of them twice", [*HIT[:17], RequestAdded("c", 2.0, 2.0, 9, 1), HIT[-1]], PrefixHit("c", [0, 0], 8)),
    ("hit", "request c hits blocks, but has a table", [*HIT, PrefixHit("c", [0], 4)], PrefixHit("c", [0], 4)),
    ("publication", r"publishes blocks \[2\], next in its table are \[0\]", RUN[:8], BlocksHashed("a", [2], [HASH])),
    ("publication", r"publishes blocks \[0\]", RUN[:8], BlocksHashed("a", [0], [HASH, HASH])),
    ("publication", "publishes 2 blocks, full are 1", RUN[:8], BlocksHashed("a", [0, 1], [HASH, HASH])),
    ("publication", "publishes 2 blocks, full are 1", RUN[:9], BlocksHashed("a", [1], [HASH])),
    ("publication", "publishes 1 blocks, full are 0", RUN[:5], BlocksHashed("a", [0], [HASH])),
    ("release", "request b still holds its blocks", PREEMPTED, Held("a", "no_slot")),
    ("release", "request a frees blocks, but was neither preempted nor ended", PREEMPTED, BlocksFreed("a", [1, 0])),
    ("release", "request b frees blocks, but was neither", FREED, BlocksFreed("b", [2])),
    ("release", r"frees blocks \[3\], its table from the end is \[2\]", PREEMPTED, BlocksFreed("b", [3])),
    ("release", r"frees blocks \[0, 1\], its table from the end is \[1, 0\]", FINISHED[:-1], BlocksFreed("a", [0, 1])),
    ("release", r"frees blocks \[\]", PREEMPTED[:-1], Preempted("b", "a", [], 4, 1)),
]


@pytest.mark.parametrize(("law", "message", "before", "event"), CONTRADICTIONS)
def test_what_cannot_have_happened_is_refused(law: str, message: str, before: list[AnyEvent], event: AnyEvent) -> None:
    replay = replayed(before)
    with pytest.raises(ContradictionError, match=message) as caught:
        replay.apply(event)
    assert caught.value.law == law
    assert caught.value.line == len(before) + 1
    assert isinstance(caught.value, TraceError)


def test_every_law_of_the_replay_is_broken_by_some_case() -> None:
    assert {law for law, *_ in CONTRADICTIONS} == set(REPLAYED_LAWS)


def test_the_error_names_file_line_and_step() -> None:
    replay = Replay("run.jsonl")
    for event in RUN[:4]:
        replay.apply(event)
    with pytest.raises(TraceError, match=r"^run\.jsonl:5: step 0: request a computes"):
        replay.apply(ChunkScheduled("a", 0, 6, 0))
