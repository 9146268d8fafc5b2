"""The prefill-first policy to the token: who is scheduled, who is held and why, who is preempted."""

from __future__ import annotations

from nanovllm.config import Config
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence, SequenceStatus
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import (
    AnyEvent,
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
    TokensAppended,
)
from tests.engine.scenarios import own_tokens, shared_tokens


def make(num_blocks: int = 64, block_size: int = 4, **options: object) -> tuple[Scheduler, list[AnyEvent]]:
    events: list[AnyEvent] = []
    config = Config.from_options(kvcache_block_size=block_size, num_kvcache_blocks=num_blocks, **options)
    return Scheduler(config, emit=events.append), events


def add(scheduler: Scheduler, prompt: int | list[int], max_tokens: int = 8, **params: object) -> Sequence:
    """Add a request; an int is the length of a prompt that nobody shares. Ids count from 0."""
    tokens = own_tokens(len(scheduler.sequences), prompt) if isinstance(prompt, int) else prompt
    seq = Sequence(tokens, SamplingParams(max_tokens=max_tokens, **params))
    scheduler.add(seq)
    return seq


def step(scheduler: Scheduler, token: int = 7) -> list[tuple[Sequence, int]]:
    """One step in which every sequence samples ``token``. Returns who computed how many tokens."""
    batch = scheduler.schedule()
    computed = [(seq, seq.num_scheduled_tokens) for seq in batch.sequences]
    scheduler.postprocess(batch.sequences, [token] * len(batch.sequences), batch.is_prefill)
    return computed


def held(events: list[AnyEvent]) -> list[tuple[object, str]]:
    return [(event.request, event.reason) for event in events if isinstance(event, Held)]


# ---- chunks and budget -------------------------------------------------------------------------------------------


def test_worked_example() -> None:
    scheduler, _ = make(block_size=16, max_num_batched_tokens=20)
    shared = shared_tokens(32)
    a = add(scheduler, shared + own_tokens(0, 32), max_tokens=1)
    assert [step(scheduler) for _ in range(4)] == [[(a, 20)], [(a, 20)], [(a, 20)], [(a, 4)]]
    assert a.is_finished
    b = add(scheduler, shared + own_tokens(1, 32))
    assert (b.num_tokens, b.num_cached_tokens, b.block_table) == (64, 0, [])

    batch = scheduler.schedule()
    assert (b.num_cached_tokens, b.num_scheduled_tokens) == (32, 20)
    assert b.block_table == [0, 1, 4, 5]  # A's first two, and all that it needs at once
    scheduler.postprocess(batch.sequences, [7], batch.is_prefill)
    assert (b.num_cached_tokens, b.num_scheduled_tokens, b.num_completion_tokens) == (52, 0, 0)

    assert step(scheduler) == [(b, 12)]
    assert (b.num_cached_tokens, b.num_completion_tokens) == (64, 1)
    assert b.status is SequenceStatus.RUNNING


def test_only_the_first_of_a_step_may_be_chunked() -> None:
    scheduler, events = make(max_num_batched_tokens=10)
    a, b = add(scheduler, 4), add(scheduler, 8)
    assert step(scheduler) == [(a, 4)]
    assert held(events) == [(1, "chunk_not_first")]
    assert b.block_table == []
    c = add(scheduler, 12)
    assert step(scheduler) == [(b, 8)]
    assert step(scheduler) == [(c, 10)]
    assert step(scheduler) == [(c, 2)]


def test_the_rest_of_a_chunked_prompt_shares_its_step() -> None:
    scheduler, _ = make(max_num_batched_tokens=10)
    a, b, c = add(scheduler, 13), add(scheduler, 5), add(scheduler, 2)
    assert step(scheduler) == [(a, 10)]
    assert step(scheduler) == [(a, 3), (b, 5), (c, 2)]


def test_no_decode_beside_a_prefill() -> None:
    scheduler, _ = make()
    a = add(scheduler, 4)
    step(scheduler)
    b = add(scheduler, 4)
    assert step(scheduler) == [(b, 4)]
    assert step(scheduler) == [(a, 1), (b, 1)]


def test_the_token_sampled_behind_an_incomplete_prompt_is_discarded() -> None:
    scheduler, events = make(max_num_batched_tokens=3)
    a = add(scheduler, 8, max_tokens=1)
    completions = []
    for token in (31, 32, 33):
        step(scheduler, token)
        completions.append(a.completion_token_ids)
    assert completions == [[], [], [33]]
    assert [event for event in events if isinstance(event, TokensAppended)] == [TokensAppended([0], [33])]


# ---- who is held, and why ----------------------------------------------------------------------------------------


def test_held_without_a_slot() -> None:
    scheduler, events = make(max_num_seqs=1)
    a, _ = add(scheduler, 4), add(scheduler, 4)
    assert step(scheduler) == [(a, 4)]
    assert step(scheduler) == [(a, 1)]
    assert held(events) == [(1, "no_slot"), (1, "no_slot")]


def test_held_without_budget() -> None:
    scheduler, events = make(max_num_batched_tokens=8)
    a, b, _ = add(scheduler, 4), add(scheduler, 4), add(scheduler, 1)
    assert step(scheduler) == [(a, 4), (b, 4)]
    assert held(events) == [(2, "no_budget")]


def test_held_without_blocks() -> None:
    scheduler, events = make(num_blocks=3)
    a, b = add(scheduler, 5, max_tokens=1), add(scheduler, 5, max_tokens=1)
    assert step(scheduler) == [(a, 5)]
    assert held(events) == [(1, "no_blocks")]
    assert step(scheduler) == [(b, 5)]


def test_a_sequence_that_computes_a_chunk_is_not_held() -> None:
    scheduler, events = make(max_num_batched_tokens=3)
    add(scheduler, 10)
    add(scheduler, 4)
    for _ in range(3):
        step(scheduler)
    assert held(events) == []


def test_requests_behind_a_held_head_wait() -> None:
    scheduler, _ = make(num_blocks=4)
    a, b, c = add(scheduler, 9, max_tokens=2), add(scheduler, 8, max_tokens=1), add(scheduler, 1, max_tokens=1)
    assert step(scheduler) == [(a, 9)]
    assert step(scheduler) == [(a, 1)]
    assert step(scheduler) == [(b, 8), (c, 1)]


# ---- the watermark -----------------------------------------------------------------------------------------------


def test_the_watermark_holds_new_requests_while_others_run() -> None:
    scheduler, events = make(num_blocks=4, watermark_blocks=3)
    a, b = add(scheduler, 5, max_tokens=2), add(scheduler, 4, max_tokens=1)
    assert step(scheduler) == [(a, 5)]  # alone: may take what it needs
    assert held(events) == [(1, "no_blocks")]
    assert step(scheduler) == [(a, 1)]
    assert step(scheduler) == [(b, 4)]


def test_the_watermark_does_not_bind_the_preempted() -> None:
    scheduler, events = make(num_blocks=5, watermark_blocks=3)
    a, b = add(scheduler, 4), add(scheduler, 4)
    assert step(scheduler) == [(a, 4), (b, 4)]
    assert step(scheduler) == [(a, 1), (b, 1)]
    scheduler.running.remove(b)
    scheduler.preempt(b, a)
    assert (b.num_tokens, scheduler.block_manager.num_free_blocks) == (6, 3)
    assert step(scheduler) == [(b, 2)]
    assert held(events) == []


# ---- decode and preemption ---------------------------------------------------------------------------------------


def test_running_keeps_its_order_over_decodes() -> None:
    scheduler, _ = make()
    seqs = [add(scheduler, length) for length in (3, 6, 4)]
    step(scheduler)
    for _ in range(3):
        assert step(scheduler) == [(seq, 1) for seq in seqs]
        assert list(scheduler.running) == seqs


def test_the_tail_is_preempted_and_stands_at_the_head_of_waiting() -> None:
    scheduler, events = make(num_blocks=3)
    a, b, c = add(scheduler, 4), add(scheduler, 3), add(scheduler, 3)
    assert step(scheduler) == [(a, 4), (b, 3), (c, 3)]
    late = add(scheduler, 1)
    events.clear()
    assert step(scheduler) == [(a, 1), (b, 1)]
    assert list(scheduler.waiting) == [c, late]
    assert (c.status, c.num_preemptions) == (SequenceStatus.WAITING, 1)
    assert (c.num_cached_tokens, c.num_scheduled_tokens, c.block_table) == (0, 0, [])
    assert c.completion_token_ids == [7]
    assert events == [
        Held(3, "no_blocks"),
        Preempted(2, 0, [2], 3, 1),
        BlocksFreed(2, [2]),
        BlocksAllocated(0, [2]),
        DecodeScheduled([0, 1]),
        BlocksHashed(1, [1], [f"{b.block_hashes[0]:016x}"]),
        TokensAppended([0, 1], [7, 7]),
    ]


def test_several_victims_come_back_in_their_old_order() -> None:
    scheduler, _ = make(num_blocks=6)
    seqs = [add(scheduler, 8, max_tokens=9) for _ in range(3)]
    for _ in range(6):
        step(scheduler)
    assert list(scheduler.waiting) == [seqs[1], seqs[2]]


def test_the_last_one_preempts_itself() -> None:
    scheduler, events = make(num_blocks=3)
    a, b = add(scheduler, 4), add(scheduler, 4)
    step(scheduler)
    assert step(scheduler) == [(a, 1)]  # takes the last free block
    [preempted] = [event for event in events if isinstance(event, Preempted)]
    assert (preempted.request, preempted.for_request) == (1, 1)
    assert list(scheduler.waiting) == [b]
    assert list(scheduler.running) == [a]


def test_an_empty_step() -> None:
    scheduler, events = make()
    batch = scheduler.schedule()
    assert (batch.sequences, batch.num_tokens, batch.phase) == ([], 0, "decode")
    assert scheduler.postprocess([], [], batch.is_prefill) == []
    assert events == []


# ---- the events of one small run ---------------------------------------------------------------------------------


def test_each_event_of_a_small_run() -> None:
    scheduler, events = make(num_blocks=3, max_num_batched_tokens=5)
    a = add(scheduler, shared_tokens(6), max_tokens=2)
    for _ in range(3):
        step(scheduler)
    scheduler.add(Sequence(shared_tokens(5), SamplingParams(max_tokens=1), "b"), time_s=2.5, arrival_s=2.0)
    step(scheduler)
    first = f"{a.block_hashes[0]:016x}"
    assert events == [
        RequestAdded(0, 0.0, 0.0, 6, 2),
        BlocksAllocated(0, [0, 1]),
        ChunkScheduled(0, 0, 5, 1),
        BlocksHashed(0, [0], [first]),
        ChunkScheduled(0, 5, 1, 0),
        TokensAppended([0], [7]),
        DecodeScheduled([0]),
        TokensAppended([0], [7]),
        RequestFinished(0, 0.0, "length"),
        BlocksFreed(0, [1, 0]),
        RequestAdded("b", 2.5, 2.0, 5, 1),
        PrefixHit("b", [0], 4),
        BlocksAllocated("b", [2]),
        ChunkScheduled("b", 4, 1, 0),
        TokensAppended(["b"], [7]),
        RequestFinished("b", 0.0, "length"),
        BlocksFreed("b", [2, 0]),
    ]
