"""What a router guesses of a replica's prefix cache, from the prompts that it sent there."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from xxhash import xxh64_intdigest


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
        """How many of a prompt's blocks, told by their ``block_hashes``, are there before the first that is not."""
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


def block_hashes(token_ids: Sequence[int], block_size: int) -> list[int]:
    """A hash for each full block of a prompt, which depends on all tokens before it too: as the block manager's."""
    size_bytes = 4 * block_size
    data = array("I", token_ids).tobytes()
    hashes: list[int] = []
    parent = 0
    for start in range(0, len(data) - size_bytes + 1, size_bytes):
        parent = xxh64_intdigest(data[start : start + size_bytes], parent)
        hashes.append(parent)
    return hashes
