"""One layer's keys and values as the kernels read them."""

from __future__ import annotations

from torch import Tensor


def block_size_of(keys: Tensor, values: Tensor) -> int:
    """Tokens in a block of a layer's pool ``[num_blocks, block_size, num_kv_heads, head_dim]``, after a look at what
    the kernels rely on."""
    block_size = keys.shape[1]
    assert block_size >= 16, "a block holds a tile of at least 16 tokens"
    assert block_size & (block_size - 1) == 0, "tiles and blocks, of a power of 2 tokens each, end together"
    assert keys.stride() == values.stride(), "keys and values lie alike"
    assert keys.stride(3) == 1, "a head's numbers lie side by side"
    return block_size
