"""The block manager to the block: who gets which block, in which order, and what can be reused."""

from __future__ import annotations

import struct

import pytest
import xxhash

from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import Sequence
from nanovllm.trace.events import AnyEvent, BlockEvicted, BlocksAllocated, BlocksFreed, BlocksHashed, PrefixHit
from tests.fakes import compute

X = [1, 2, 3, 4]
Y = [5, 6, 7, 8]
Z = [9, 10, 11, 12]


def admit(manager: BlockManager, tokens: list[int], request_id: int = 0) -> Sequence:
    """Admit a prompt and compute it."""
    seq = Sequence(tokens, request_id=request_id)
    num_cached_blocks = manager.can_allocate(seq)
    assert num_cached_blocks is not None
    manager.allocate(seq, num_cached_blocks)
    compute(manager, seq, seq.num_tokens - seq.num_cached_tokens)
    return seq


def admit_and_release(manager: BlockManager, tokens: list[int]) -> list[int]:
    """Returns the blocks it had, all free again."""
    seq = admit(manager, tokens)
    blocks = seq.block_table
    manager.deallocate(seq)
    return blocks


def chain(*blocks: list[int]) -> list[int]:
    """The hashes of consecutive full blocks, by the definition: each seeded with the one before it."""
    hashes = [0]
    for tokens in blocks:
        hashes.append(xxhash.xxh64_intdigest(struct.pack(f"<{len(tokens)}I", *tokens), seed=hashes[-1]))
    return hashes[1:]


# ---- the free list -----------------------------------------------------------------------------------------------


def test_all_blocks_start_free_in_id_order() -> None:
    manager = BlockManager(6, 4)
    assert list(manager.free_blocks) == [0, 1, 2, 3, 4, 5]
    assert admit(manager, X + Y + [0]).block_table == [0, 1, 2]
    assert list(manager.free_blocks) == [3, 4, 5]
    assert manager.num_free_blocks == 3


def test_release_appends_the_deepest_block_first() -> None:
    manager = BlockManager(6, 4)
    first, second = admit(manager, [*X, 0]), admit(manager, Y + Z)
    manager.deallocate(first)
    assert list(manager.free_blocks) == [4, 5, 1, 0]
    manager.deallocate(second)
    assert list(manager.free_blocks) == [4, 5, 1, 0, 3, 2]
    assert admit(manager, [20, 21, 22, 23, 24] * 2).block_table == [4, 5, 1]


def test_reviving_a_block_takes_it_out_of_the_middle_of_the_free_list() -> None:
    manager = BlockManager(6, 4)
    admit_and_release(manager, [*X, 0])
    admit_and_release(manager, [*Y, 0])
    assert list(manager.free_blocks) == [4, 5, 1, 0, 3, 2]
    assert admit(manager, [*X, 13]).block_table == [0, 4]
    assert list(manager.free_blocks) == [5, 1, 3, 2]


def test_a_block_held_by_two_tables_is_freed_by_the_second_release() -> None:
    manager = BlockManager(4, 4)
    first, second = admit(manager, [*X, 0]), admit(manager, [*X, 13])
    assert (first.block_table, second.block_table) == ([0, 1], [0, 2])
    assert manager.ref_counts == [2, 1, 1, 0]
    manager.deallocate(first)
    assert list(manager.free_blocks) == [3, 1]
    manager.deallocate(second)
    assert list(manager.free_blocks) == [3, 1, 2, 0]


def test_releasing_twice_is_an_error() -> None:
    manager = BlockManager(4, 4)
    seq = admit(manager, X)
    blocks = seq.block_table
    manager.deallocate(seq)
    seq.block_table = blocks
    with pytest.raises(AssertionError, match="block 0 is released twice"):
        manager.deallocate(seq)


def test_allocating_twice_is_an_error() -> None:
    manager = BlockManager(4, 4)
    seq = admit(manager, X)
    with pytest.raises(AssertionError, match="is already allocated"):
        manager.allocate(seq, 0)


# ---- admission ---------------------------------------------------------------------------------------------------


def test_the_whole_sequence_must_fit() -> None:
    manager = BlockManager(3, 4)
    assert manager.can_allocate(Sequence([0] * 12)) == 0
    assert manager.can_allocate(Sequence([0] * 13)) is None
    assert manager.can_allocate(Sequence([0] * 8), num_reserved_blocks=1) == 0
    assert manager.can_allocate(Sequence([0] * 9), num_reserved_blocks=1) is None


def test_a_hit_on_a_free_block_is_charged_and_one_in_use_is_not() -> None:
    manager = BlockManager(4, 4)
    holder = admit(manager, [*X, 0])
    seq = Sequence(X + Y + [0])
    assert manager.can_allocate(seq) == 1  # 2 new blocks, 2 free
    manager.deallocate(holder)
    admit(manager, [20])
    assert manager.can_allocate(seq) == 1  # 2 new + 1 revived, 3 free
    admit(manager, [21])
    assert manager.num_free_blocks == 2
    assert manager.can_allocate(seq) is None


def test_the_last_block_of_a_sequence_is_never_reused() -> None:
    manager = BlockManager(8, 4)
    admit_and_release(manager, X + Y + [0])
    assert manager.can_allocate(Sequence(X)) == 0
    assert manager.can_allocate(Sequence(X + Y)) == 1
    assert manager.can_allocate(Sequence(X + Y + [13])) == 2


def test_reuse_stops_at_the_first_miss() -> None:
    manager = BlockManager(8, 4)
    admit_and_release(manager, X + Y + Z + [0])
    assert manager.can_allocate(Sequence(X + Z + Z + [0])) == 1
    assert manager.can_allocate(Sequence(Y + Z + [0])) == 0  # the same tokens, but not after the same ones


def test_without_prefix_caching_nothing_is_published_or_found() -> None:
    events: list[AnyEvent] = []
    manager = BlockManager(8, 4, enable_prefix_caching=False, emit=events.append)
    admit_and_release(manager, X + Y + [0])
    assert manager.can_allocate(Sequence(X + Y + [0])) == 0
    assert manager.contents == [None] * 8
    assert {type(event) for event in events} == {BlocksAllocated, BlocksFreed}


def test_what_a_sequence_finds_of_its_own_is_no_prefix_hit() -> None:
    manager = BlockManager(8, 4)
    admit_and_release(manager, [*X, 0])
    seq = admit(manager, [*X, *Y, 0])
    assert (seq.num_cached_tokens, seq.num_prefix_hit_tokens) == (9, 4)
    manager.deallocate(seq)
    seq.num_preemptions += 1
    manager.allocate(seq, 2)
    assert (seq.num_cached_tokens, seq.num_prefix_hit_tokens) == (8, 4)


# ---- growth ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
def test_a_sequence_gets_a_block_exactly_when_its_tokens_no_longer_fit(block_size: int) -> None:
    manager = BlockManager(8, block_size)
    seq = admit(manager, [1])
    for num_tokens in range(2, 8):
        seq.append_token(num_tokens)
        assert manager.can_append(seq)
        manager.may_append(seq)
        assert len(seq.block_table) == -(-num_tokens // block_size)


def test_growing_into_an_empty_pool_is_refused_only_at_a_block_boundary() -> None:
    manager = BlockManager(1, 2)
    seq = admit(manager, [1])
    seq.append_token(2)
    assert manager.can_append(seq)
    seq.append_token(3)
    assert not manager.can_append(seq)
    assert seq.block_table == [0]


# ---- publication -------------------------------------------------------------------------------------------------


def test_hashes_are_a_chain_of_xxh64_over_little_endian_tokens() -> None:
    events: list[AnyEvent] = []
    manager = BlockManager(8, 4, emit=events.append)
    seq = admit(manager, X + Y + Z + [0], request_id=7)
    hashes = chain(X, Y, Z)
    assert seq.block_hashes == hashes
    assert events[-1] == BlocksHashed(7, [0, 1, 2], [f"{value:016x}" for value in hashes])
    assert hashes[0] == 0x27F0147E6EC514A6


def test_a_block_is_published_when_its_last_slot_is_computed() -> None:
    manager = BlockManager(4, 4)
    seq = Sequence(X + Y + [13, 14])
    manager.allocate(seq, 0)
    published = []
    for num_tokens in (3, 3, 3, 1):
        compute(manager, seq, num_tokens)
        published.append([block for block, content in enumerate(manager.contents) if content is not None])
    assert published == [[], [0], [0, 1], [0, 1]]
    for token in (15, 16):  # generated tokens fill the last block
        seq.append_token(token)
        compute(manager, seq, 1)
    assert seq.num_published_blocks == 3


def test_each_block_is_hashed_once() -> None:
    hashed: list[bytes] = []

    def hash_function(tokens: bytes, parent: int) -> int:
        hashed.append(tokens)
        return xxhash.xxh64_intdigest(tokens, parent)

    manager = BlockManager(8, 4, hash_function=hash_function)
    seq = Sequence(X + Y + Z + [0])
    for _ in range(3):
        assert manager.can_allocate(seq) == 0
        manager.allocate(seq, 0)
        compute(manager, seq, seq.num_tokens)
        manager.deallocate(seq)
        manager = BlockManager(8, 4, hash_function=hash_function)
    assert len(hashed) == 3


def test_the_copy_published_last_is_taken_and_the_other_found_when_it_is_gone() -> None:
    manager = BlockManager(6, 4)
    one, two = Sequence([*X, 0]), Sequence([*X, 13])
    for seq in (one, two):  # both are admitted before either is computed
        manager.allocate(seq, 0)
    for seq in (one, two):
        compute(manager, seq, 5)
    assert (one.block_table, two.block_table) == ([0, 1], [2, 3])
    assert admit(manager, [*X, 14]).block_table == [2, 4]
    manager.deallocate(two)
    manager.deallocate(one)
    assert list(manager.free_blocks) == [5, 3, 1, 0]
    admit(manager, [20] * 12)  # evicts nothing that is a copy of X
    assert admit(manager, [*X, 15]).block_table == [2, 0]  # evicts the older copy
    assert manager.contents[0] is None


# ---- eviction ----------------------------------------------------------------------------------------------------


def test_content_is_forgotten_when_its_block_is_handed_out_and_not_before() -> None:
    events: list[AnyEvent] = []
    manager = BlockManager(3, 4, emit=events.append)
    admit_and_release(manager, X + Y + [0])
    assert list(manager.free_blocks) == [2, 1, 0]
    assert manager.can_allocate(Sequence(X + Y + [13])) == 2
    events.clear()
    seq = admit(manager, [20] * 8, request_id=5)
    assert seq.block_table == [2, 1]
    assert events[:2] == [BlockEvicted(1, f"{chain(X, Y)[1]:016x}"), BlocksAllocated(5, [2, 1])]
    manager.deallocate(seq)
    assert manager.can_allocate(Sequence(X + Y + [13])) == 1


def test_hits_are_told_before_new_blocks() -> None:
    events: list[AnyEvent] = []
    manager = BlockManager(4, 4, emit=events.append)
    admit_and_release(manager, X + Y + [0])
    events.clear()
    admit(manager, X + Y + [13, 14], request_id=3)
    assert events == [PrefixHit(3, [0, 1], 8), BlocksAllocated(3, [3])]


# ---- identity ----------------------------------------------------------------------------------------------------


def test_a_collision_never_serves_another_content() -> None:
    manager = BlockManager(16, 4, hash_function=lambda tokens, parent: 42)
    admit(manager, X + Y + [0])
    assert manager.can_allocate(Sequence(Z + Y + [0])) == 0
    assert manager.can_allocate(Sequence(X + Z + [0])) == 1
    admit(manager, Z + Y + [0])
    assert admit(manager, Z + Y + [13]).block_table[:2] == [3, 4]
    assert admit(manager, X + Y + [13]).block_table[:2] == [0, 1]


def test_managers_with_different_block_sizes_share_nothing() -> None:
    four, two = BlockManager(8, 4), BlockManager(8, 2)
    admit(four, X + Y + [0])
    assert two.can_allocate(Sequence(X + Y + [0])) == 0
    assert admit(two, X + Y + [0]).block_table == [0, 1, 2, 3, 4]
    assert four.can_allocate(Sequence(X + Y + [0])) == 2
