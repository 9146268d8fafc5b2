"""The laws of the engine's state, checked from outside: what must hold between any two operations."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

from nanovllm.engine.block_manager import BlockContent, BlockManager
from nanovllm.engine.policies.mixed import MixedScheduler
from nanovllm.engine.policies.ranked import RankedScheduler
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence, SequenceStatus


def check_pool(manager: BlockManager, seqs: Iterable[Sequence]) -> None:
    """Free + in use = all, and the counts say who holds what. ``seqs``: all that may have a table."""
    tables = [seq.block_table for seq in seqs]
    holders = Counter(block for table in tables for block in table)
    assert manager.ref_counts == [holders[block] for block in range(manager.num_blocks)]
    assert set(manager.free_blocks) == {block for block in range(manager.num_blocks) if not holders[block]}
    assert manager.num_free_blocks == len(list(manager.free_blocks)) == manager.num_blocks - len(holders)
    for table in tables:
        assert len(set(table)) == len(table), f"a block stands twice in {table}"


def check_contents(manager: BlockManager) -> None:
    """Blocks and contents point at each other, contents are interned, and no evicted one can be found."""
    by_serial: dict[int, BlockContent] = {}
    for hash_value, first in manager._contents_by_hash.items():
        content: BlockContent | None = first
        while content is not None:
            assert content.hash == hash_value
            assert content.serial not in by_serial
            assert content.copies, "a content without copies can be found"
            assert all(manager.contents[block] is content for block in content.copies)
            by_serial[content.serial] = content
            content = content.colliding
    for block, content in enumerate(manager.contents):
        assert content is None or (by_serial[content.serial] is content and block in content.copies)
    identities = [(content.parent, content.tokens) for content in by_serial.values()]
    assert len(set(identities)) == len(identities), "two contents are equal"
    # A child whose parent is gone could never be found again, and its slot in the pool would cache nothing.
    assert {content.parent for content in by_serial.values()} <= {0, *by_serial}


def check_published(manager: BlockManager, seq: Sequence) -> None:
    """What is published under a table is what the sequence's tokens say, as far as its KV is computed."""
    size = manager.block_size
    is_caching = manager.enable_prefix_caching
    assert seq.num_published_blocks == (seq.num_cached_tokens // size if is_caching else 0)
    parent = 0
    for index, block in enumerate(seq.block_table):
        content = manager.contents[block]
        if index >= seq.num_published_blocks:
            assert content is None, f"block {block} is published before it is full"
            continue
        assert content is not None
        assert content.parent == parent
        assert content.tokens == array("I", seq.token_ids[index * size : (index + 1) * size]).tobytes()
        parent = content.serial


def check_scheduler(scheduler: Scheduler) -> None:
    """The laws of queues and counters between two steps, on top of those of the block manager."""
    manager = scheduler.block_manager
    seqs = [*scheduler.waiting, *scheduler.running]
    assert sorted(map(id, seqs)) == sorted(map(id, scheduler.sequences.values()))
    assert all(scheduler.sequences[seq.request_id] is seq for seq in seqs)
    check_pool(manager, seqs)
    check_contents(manager)
    assert len(scheduler.running) <= scheduler.max_num_seqs
    for seq in seqs:
        check_published(manager, seq)
        assert seq.num_tokens == len(seq.token_ids) < seq.num_tokens_limit
        assert seq.num_scheduled_tokens == 0
        assert len(seq.block_table) <= manager.num_blocks_for(seq.num_tokens_limit - 1)
    prefilling = scheduler._prefilling if isinstance(scheduler, MixedScheduler) else {}
    assert set(prefilling) <= set(scheduler.running)
    for seq in scheduler.running:
        assert seq.status is SequenceStatus.RUNNING
        if seq in prefilling:
            assert 0 < seq.num_cached_tokens < seq.num_tokens
        else:
            assert seq.num_cached_tokens == seq.num_tokens - 1, "all but the newest token is computed"
            assert seq.num_completion_tokens >= 1
        assert len(seq.block_table) == manager.num_blocks_for(seq.num_cached_tokens)
    for seq in scheduler.waiting:
        assert seq.status is SequenceStatus.WAITING
        assert seq.num_completion_tokens == 0 or seq.num_preemptions > 0
        if seq.block_table:
            assert len(seq.block_table) == manager.num_blocks_for(seq.num_tokens)
            assert seq.num_cached_tokens < seq.num_tokens
        else:
            assert seq.num_cached_tokens == 0


def check_policy(scheduler: Scheduler) -> None:
    """What the scheduler's policy keeps on top of that."""
    if isinstance(scheduler, RankedScheduler):
        check_ranked(scheduler)
    elif isinstance(scheduler, MixedScheduler):
        check_mixed(scheduler)
    else:
        check_prefill_first(scheduler)


def check_ranked(scheduler: RankedScheduler) -> None:
    """Each that is there has its rank, and each that waits stands once in the queue of ranks."""
    assert set(scheduler._ranks) == set(scheduler.sequences.values())
    queued = [seq for _, seq in scheduler._queue if seq.status is SequenceStatus.WAITING]
    assert sorted(map(id, queued)) == sorted(map(id, scheduler.waiting))
    assert not any(seq.block_table for seq in scheduler.waiting)


def check_mixed(scheduler: MixedScheduler) -> None:
    """Blocks are held by those that run, and nobody ever overtakes anybody: one is admitted from the head of waiting,
    preempted from the tail of running, and preempted ones wait at the head."""
    assert not any(seq.block_table for seq in scheduler.waiting)
    assert [*scheduler.running, *scheduler.waiting] == list(scheduler.sequences.values())
    assert list(scheduler._prefilling) == [seq for seq in scheduler.running if seq in scheduler._prefilling]


def check_prefill_first(scheduler: Scheduler) -> None:
    """What only this policy keeps. Only its decode steps preempt, and a step decodes only when the head of waiting
    cannot go on: so no sequence is ever put in front of one whose prompt is half computed. And as the tail of
    running goes to the head of waiting and back, nobody ever overtakes anybody."""
    waiting = list(scheduler.waiting)
    assert not any(seq.block_table for seq in waiting[1:]), "a sequence behind the head of waiting holds blocks"
    in_order_of_arrival = list(scheduler.sequences.values())
    assert [*scheduler.running, *waiting] == in_order_of_arrival, "a sequence has overtaken another"
