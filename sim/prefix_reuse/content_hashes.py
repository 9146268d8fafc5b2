"""What a prompt's blocks hold, as the block manager tells it in its events."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import xxhash


def content_hashes(token_ids: Sequence[int], block_size: int) -> list[int]:
    """A hash for each block, of its tokens after those of all blocks before it. The last block may hold fewer tokens;
    its hash then equals only that of a last block that holds the same."""
    data = array("I", token_ids).tobytes()
    width_bytes = 4 * block_size
    hashes: list[int] = []
    parent = 0
    for start in range(0, len(data), width_bytes):
        parent = xxhash.xxh64_intdigest(data[start : start + width_bytes], parent)
        hashes.append(parent)
    return hashes
