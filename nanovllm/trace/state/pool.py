"""The KV pool as the events tell it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

from nanovllm.trace.events import TraceStarted
from nanovllm.trace.state.laws import BrokenLawError

MAX_NUM_BLOCKS = 2**25
"""The largest pool. Even blocks of one token don't come to more on a card, and a replay holds it in a few gigabytes."""


def read_pool_size(header: TraceStarted) -> tuple[int, int]:
    """How many blocks of how many tokens there are. Raises ``BrokenLawError`` for a header that does not say so."""
    num_blocks, block_size = header.config.get("num_blocks"), header.config.get("block_size")
    if type(num_blocks) is not int or not 1 <= num_blocks <= MAX_NUM_BLOCKS:
        allowed = f"a whole number from 1 to {MAX_NUM_BLOCKS} is needed"
        raise BrokenLawError("header", f"config.num_blocks is {num_blocks!r}: {allowed}")
    if type(block_size) is not int or block_size < 1:
        raise BrokenLawError("header", f"config.block_size is {block_size!r}: a whole number from 1 upward is needed")
    return num_blocks, block_size


class BlockPool:
    """Free list, reference counts and published content of ``num_blocks`` blocks.

    Each method applies one event, or raises ``BrokenLawError`` where the event contradicts the pool. Costs are
    those of the blocks named, never of the pool's size.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free_blocks: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        """The free list, its head first."""
        self.ref_counts = [0] * num_blocks
        self.block_hashes: dict[int, str] = {}
        """Block -> hash of its content, for those that hold content, in order of publication."""
        self.num_cached_free_blocks = 0
        """Free blocks that still hold content."""

    @property
    def num_blocks_in_use(self) -> int:
        """Blocks that some table holds."""
        return self.num_blocks - len(self.free_blocks)

    def copies(self) -> dict[str, list[int]]:
        """Hash -> the blocks that hold this content, in order of publication."""
        copies: dict[str, list[int]] = {}
        for block, block_hash in self.block_hashes.items():
            copies.setdefault(block_hash, []).append(block)
        return copies

    def hit(self, blocks: Sequence[int]) -> None:
        """Add a reference to each block; the free ones among them are revived."""
        if len(set(blocks)) < len(blocks):
            raise BrokenLawError("hit", f"blocks {blocks} are hit, one of them twice")
        for block in blocks:
            if block not in self.block_hashes:
                raise BrokenLawError("hit", f"block {block} is hit, but holds no published content")
            if self.ref_counts[block] == 0:
                del self.free_blocks[block]
                self.num_cached_free_blocks -= 1
            self.ref_counts[block] += 1

    def allocate(self, blocks: Sequence[int]) -> None:
        """Take these blocks from the head of the free list."""
        head = list(islice(self.free_blocks, len(blocks)))
        if head != blocks:
            raise BrokenLawError("free_list", f"blocks {blocks} are allocated, but the free list begins with {head}")
        for block in blocks:
            if block in self.block_hashes:
                raise BrokenLawError("eviction", f"block {block} is allocated with its cached content still in it")
            del self.free_blocks[block]
            self.ref_counts[block] = 1

    def evict(self, block: int, block_hash: str) -> None:
        """Forget the content of a free block."""
        held = self.block_hashes.get(block)
        if held != block_hash:
            what = "nothing" if held is None else held
            raise BrokenLawError("eviction", f"content {block_hash} of block {block} is evicted, but it holds {what}")
        if self.ref_counts[block]:
            raise BrokenLawError("eviction", f"block {block} is evicted, but {self.ref_counts[block]} tables hold it")
        del self.block_hashes[block]
        self.num_cached_free_blocks -= 1

    def publish(self, block: int, block_hash: str) -> None:
        """Make the content of a block that is in use shareable."""
        if block in self.block_hashes:
            raise BrokenLawError("publication", f"block {block} is published, but it already holds content")
        self.block_hashes[block] = block_hash

    def release(self, blocks: Sequence[int]) -> None:
        """Take a reference from each block; one that no table holds any more joins the tail of the free list."""
        for block in blocks:
            self.ref_counts[block] -= 1
            if self.ref_counts[block] == 0:
                self.free_blocks[block] = None
                self.num_cached_free_blocks += block in self.block_hashes
