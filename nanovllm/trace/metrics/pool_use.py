"""How much of the KV pool is in use: all that metrics need to know of it."""

from __future__ import annotations

from collections.abc import Sequence

from nanovllm.trace.events import BlockEvicted
from nanovllm.trace.state.laws import BrokenLawError


class PoolUse:
    """Counts the blocks that tables hold, and the free ones that still cache something.

    Believes the events as far as it can: unlike ``BlockPool``, it knows neither the order of the free list nor hashes.
    Sets take in many blocks at once, which of a run of millions of blocks is much of the time.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._in_use: set[int] = set()
        self._more_holders: dict[int, int] = {}
        """Block -> how many tables hold it besides the first, for those that several hold."""
        self._cached_in_use: set[int] = set()
        self._cached_free: set[int] = set()

    @property
    def num_blocks_in_use(self) -> int:
        """Blocks that some table holds."""
        return len(self._in_use)

    @property
    def num_cached_free_blocks(self) -> int:
        """Free blocks that still hold content."""
        return len(self._cached_free)

    def hit(self, blocks: Sequence[int]) -> None:
        """Add a reference to each block."""
        for block in self._in_use.intersection(blocks):
            self._more_holders[block] = self._more_holders.get(block, 0) + 1
        self._in_use.update(blocks)
        self._cached_in_use |= self._cached_free.intersection(blocks)
        self._cached_free.difference_update(blocks)

    def allocate(self, blocks: Sequence[int]) -> None:
        """Take free blocks that hold nothing."""
        self._in_use.update(blocks)

    def evict(self, event: BlockEvicted) -> None:
        """Forget the content of a free block. Raises ``BrokenLawError`` if there is none."""
        block = event.block
        try:
            self._cached_free.remove(block)
        except KeyError:
            where = f"content {event.hash} of block {block} is evicted, but it"
            what = "is in use" if block in self._cached_in_use else "holds nothing"
            raise BrokenLawError("eviction", f"{where} {what}") from None

    def publish(self, blocks: Sequence[int]) -> None:
        """Let blocks in use hold content."""
        self._cached_in_use.update(blocks)

    def release(self, blocks: Sequence[int]) -> None:
        """Take a reference from each block. Raises ``BrokenLawError`` for one that no table holds."""
        if not self._in_use.issuperset(blocks):
            free = next(block for block in blocks if block not in self._in_use)
            raise BrokenLawError("release", f"block {free} is released, but no table holds it")
        if self._more_holders:
            blocks = [block for block in blocks if not self._is_held_by_another(block)]
        self._in_use.difference_update(blocks)
        cached = self._cached_in_use.intersection(blocks)
        self._cached_in_use -= cached
        self._cached_free |= cached

    def _is_held_by_another(self, block: int) -> bool:
        """Whether a table still holds the block that one lets go."""
        count = self._more_holders.pop(block, 0)
        if count > 1:
            self._more_holders[block] = count - 1
        return count > 0
