"""What the blocks of a prompt hold, as the block manager's events tell it: a hash of a block's tokens after those of
all blocks before it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import xxhash


def block_hashes(token_ids: Sequence[int], block_size: int) -> list[int]:
    """A hash for each full block of a prompt."""
    return prompt_hashes(token_ids, block_size)[: len(token_ids) // block_size]


def prompt_hashes(token_ids: Sequence[int], block_size: int) -> list[int]:
    """The same for all blocks: the last one may hold fewer tokens, and then equals only one that holds the same."""
    data = array("I", token_ids).tobytes()
    width_bytes = 4 * block_size
    hashes: list[int] = []
    parent = 0
    for start in range(0, len(data), width_bytes):
        parent = xxhash.xxh64_intdigest(data[start : start + width_bytes], parent)
        hashes.append(parent)
    return hashes
