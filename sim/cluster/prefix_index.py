"""What a router guesses of a replica's prefix cache, from the prompts that it sent there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class PrefixIndex:
    """Hashes of the blocks that a replica has probably cached, of which it keeps the ``max_blocks`` used last.

    A guess: a block counts from the moment in which its prompt is sent, computed or not, and how the replica evicts is
    imitated, not seen.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def num_leading(self, hashes: Iterable[int]) -> int:
        """How many of a prompt's blocks, told by their ``sim.block_hashes``, are there before the first that is not."""
        count = 0
        for block_hash in hashes:
            if block_hash not in self._blocks:
                break
            count += 1
        return count

    def add(self, hashes: Sequence[int]) -> None:
        """Note that a prompt was sent. Its first block counts as used last: prefixes live longest, as in the engine."""
        blocks = self._blocks
        for block_hash in reversed(hashes):
            blocks[block_hash] = None
            blocks.move_to_end(block_hash)
        while len(blocks) > self._max_blocks:
            blocks.popitem(last=False)
