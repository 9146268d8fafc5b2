"""Random lives of blocks: the block manager against a model of it that is as simple as it can be."""

from __future__ import annotations

from collections.abc import Callable

import xxhash
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import Sequence
from nanovllm.trace.events import AnyEvent, BlockEvicted
from tests.engine.invariants import check_contents, check_pool, check_published
from tests.fakes import compute
from tests.strategies import prompts, token_ids

HASH_FUNCTIONS: dict[str, Callable[[bytes, int], int]] = {
    "xxh64": xxhash.xxh64_intdigest,
    "one bit": lambda tokens, parent: (sum(tokens) + parent) % 2,
    "constant": lambda tokens, parent: 0,
}


class Model:
    """Lists and plain searches: the free list, and what each block holds as the whole text up to its end."""

    def __init__(self, num_blocks: int, block_size: int, is_caching: bool) -> None:
        self.block_size = block_size
        self.is_caching = is_caching
        self.free = list(range(num_blocks))
        self.published: dict[int, list[int]] = {}  # in order of publication

    def hits(self, tokens: list[int]) -> list[int]:
        hits: list[int] = []
        for end in range(self.block_size, len(tokens), self.block_size):
            copies = [block for block, text in self.published.items() if text == tokens[:end]]
            if not copies:
                break
            hits.append(copies[-1])
        return hits

    def fits(self, tokens: list[int], num_reserved: int) -> bool:
        hits = self.hits(tokens)
        num_new = -(-len(tokens) // self.block_size) - len(hits)
        return num_new + num_reserved <= len([block for block in self.free if block not in hits])

    def allocate(self, tokens: list[int]) -> tuple[list[int], list[int]]:
        """The table, and the blocks whose content is lost."""
        hits = self.hits(tokens)
        self.free = [block for block in self.free if block not in hits]
        new, evicted = self.take(-(-len(tokens) // self.block_size) - len(hits))
        return hits + new, evicted

    def take(self, count: int) -> tuple[list[int], list[int]]:
        new, self.free = self.free[:count], self.free[count:]
        evicted = [block for block in new if self.published.pop(block, None)]
        return new, evicted

    def publish(self, table: list[int], tokens: list[int], start: int, end: int) -> None:
        if self.is_caching:
            for index in range(start // self.block_size, end // self.block_size):
                self.published[table[index]] = tokens[: (index + 1) * self.block_size]

    def release(self, table: list[int], other_tables: list[list[int]]) -> None:
        held = {block for other in other_tables for block in other}
        self.free += [block for block in reversed(table) if block not in held]


class BlockManagerMachine(RuleBasedStateMachine):
    """Sequences are admitted, computed in chunks, grown, released and admitted again."""

    @initialize(
        num_blocks=st.integers(1, 10),
        block_size=st.integers(1, 4),
        is_caching=st.sampled_from([True, True, True, False]),
        hash_name=st.sampled_from(sorted(HASH_FUNCTIONS)),
    )
    def start(self, num_blocks: int, block_size: int, is_caching: bool, hash_name: str) -> None:
        self.events: list[AnyEvent] = []
        self.manager = BlockManager(
            num_blocks,
            block_size,
            enable_prefix_caching=is_caching,
            hash_function=HASH_FUNCTIONS[hash_name],
            emit=self.events.append,
        )
        self.model = Model(num_blocks, block_size, is_caching)
        self.resident: list[Sequence] = []
        self.released: list[Sequence] = []

    def evictions(self) -> list[int]:
        """Of the rule that is running."""
        return [event.block for event in self.events if isinstance(event, BlockEvicted)]

    def pick(self, seqs: list[Sequence], index: int) -> Sequence:
        return seqs[index % len(seqs)]

    def try_to_admit(self, seq: Sequence, num_reserved: int) -> bool:
        self.events.clear()
        fits, num_hits = self.model.fits(seq.token_ids, num_reserved), len(self.model.hits(seq.token_ids))
        num_cached_blocks = self.manager.can_allocate(seq, num_reserved)
        assert num_cached_blocks == (num_hits if fits else None)
        assert (self.events, seq.block_table) == ([], []), "a question changed something"
        if num_cached_blocks is None:
            return False
        self.manager.allocate(seq, num_cached_blocks)
        assert (seq.block_table, self.evictions()) == self.model.allocate(seq.token_ids)
        assert seq.num_cached_tokens == num_hits * self.model.block_size < seq.num_tokens
        self.resident.append(seq)
        return True

    @rule(prompt=prompts(), num_reserved=st.sampled_from([0, 0, 0, 2]))
    def admit(self, prompt: list[int], num_reserved: int) -> None:
        self.try_to_admit(Sequence(prompt), num_reserved)

    @precondition(lambda self: self.released)
    @rule(index=st.integers(0, 9))
    def admit_again(self, index: int) -> None:
        seq = self.pick(self.released, index)
        if self.try_to_admit(seq, 0):
            self.released.remove(seq)

    @precondition(lambda self: self.resident)
    @rule(index=st.integers(0, 9), most=st.integers(1, 14))
    def compute_chunk(self, index: int, most: int) -> None:
        seq = self.pick(self.resident, index)
        start = seq.num_cached_tokens
        end = min(start + most, seq.num_tokens)
        compute(self.manager, seq, end - start)
        self.model.publish(seq.block_table, seq.token_ids, start, end)

    @precondition(lambda self: any(seq.num_cached_tokens == seq.num_tokens for seq in self.resident))
    @rule(index=st.integers(0, 9), token=token_ids)
    def decode(self, index: int, token: int) -> None:
        seq = self.pick([seq for seq in self.resident if seq.num_cached_tokens == seq.num_tokens], index)
        self.events.clear()
        seq.append_token(token)
        needs_block = len(seq.block_table) * self.model.block_size < seq.num_tokens
        assert self.manager.can_append(seq) == (not needs_block or bool(self.model.free))
        if not self.manager.can_append(seq):
            self.release(self.resident.index(seq))
            return
        old_table = list(seq.block_table)
        self.manager.may_append(seq)
        new, evicted = self.model.take(int(needs_block))
        assert (seq.block_table, self.evictions()) == (old_table + new, evicted)

    @precondition(lambda self: self.resident)
    @rule(index=st.integers(0, 9))
    def release(self, index: int) -> None:
        seq = self.pick(self.resident, index)
        self.resident.remove(seq)
        self.model.release(seq.block_table, [other.block_table for other in self.resident])
        self.manager.deallocate(seq)
        assert (seq.block_table, seq.num_cached_tokens, seq.num_published_blocks) == ([], 0, 0)
        self.released = [*self.released[-4:], seq]

    @invariant()
    def laws(self) -> None:
        check_pool(self.manager, self.resident)
        check_contents(self.manager)
        for seq in self.resident:
            check_published(self.manager, seq)

    @invariant()
    def equals_the_model(self) -> None:
        assert list(self.manager.free_blocks) == self.model.free
        published = {block for block, content in enumerate(self.manager.contents) if content is not None}
        assert published == set(self.model.published)


TestBlockManager = BlockManagerMachine.TestCase
TestBlockManager.settings = settings(max_examples=300, stateful_step_count=40)
