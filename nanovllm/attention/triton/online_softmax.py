"""Softmax over a context that is seen piece by piece: a running maximum, a running sum, a running mean of values.

Scores are in powers of 2. A state is ``acc`` ``[rows, dims]``, the sum of values weighted by ``2 ** (score -
largest)``; ``largest`` ``[rows]``; and ``total`` ``[rows]``, the sum of the weights (Milakov and Gimelshein 2018,
arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def merge_part(acc, largest, total, part_out, part_lse):
    """Take one more part, its output and log-sum-exp (base 2), into a running softmax."""
    new_largest = tl.maximum(largest, part_lse)
    shrink = tl.exp2(largest - new_largest)
    weight = tl.exp2(part_lse - new_largest)
    return acc * shrink[:, None] + part_out * weight[:, None], new_largest, total * shrink + weight


@triton.jit
def tile_slots(
    table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr
):
    """Where the tokens ``first + offset`` ``[TILE]`` begin in a layer's keys or values. ``first`` is a multiple of
    TILE or of BLOCK_SIZE, whichever is smaller."""
    if BLOCK_SIZE % TILE == 0:
        block = tl.load(table + first // BLOCK_SIZE).to(tl.int64)
        slots = block * stride_block + (first % BLOCK_SIZE + offset) * stride_token
    else:
        blocks = tl.load(table + (first + offset) // BLOCK_SIZE, mask=is_token, other=0).to(tl.int64)
        slots = blocks * stride_block + ((first + offset) % BLOCK_SIZE) * stride_token
    return slots


@triton.jit
def prefetch_tile(
    keys,
    values,
    table,
    first,
    end,
    stride_block,
    stride_token,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Ask for the tokens from ``first`` on, but none from ``end`` on, to come into the L2 cache. On a card only."""
    LINE: tl.constexpr = 128 * 8 // keys.dtype.element_ty.primitive_bitwidth  # numbers that the cache takes at a time
    LINES: tl.constexpr = triton.next_power_of_2((HEAD_DIM + LINE - 1) // LINE)
    token = tl.minimum(tl.arange(0, TILE), end - 1 - first)
    slots = tile_slots(table, first, token, token >= 0, stride_block, stride_token, BLOCK_SIZE, TILE)
    place = slots[:, None] + tl.minimum(tl.arange(0, LINES) * LINE, HEAD_DIM - 1)[None, :]
    for pool in tl.static_range(2):
        address = (place + (keys if pool == 0 else values)).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def attend_tile(
    query,  # [rows, padded dims]
    acc,
    largest,
    total,
    keys,
    values,
    slots,  # [tile]
    is_token,  # [tile]: tokens that exist
    visible,  # [rows or 1, tile]: tokens that a row sees, read if MASKED; the first tile has one for each row
    key_dim,  # [padded dims]: the order in which ``query`` has its dimensions
    in_key_dim,
    dim,  # [padded dims]
    in_dim,
    scale,
    MASKED: tl.constexpr,
    PADDED: tl.constexpr,  # some dims are padding
):
    """Let all rows attend to the tokens of one tile."""
    key_place = keys + slots[None, :] + key_dim[:, None]
    value_place = values + slots[:, None] + dim[None, :]
    if MASKED:  # what lies behind the last token is not read: it may be no number
        key = tl.load(key_place, mask=is_token[None, :] & in_key_dim[:, None], other=0.0)
    elif PADDED:
        key = tl.load(key_place, mask=in_key_dim[:, None], other=0.0)
    else:
        key = tl.load(key_place)
    score = tl.dot(query, key, input_precision="ieee")
    if MASKED:
        score = tl.where(visible, score, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(score, 1) * scale)
    shrink = tl.exp2(largest - new_largest)
    weight = tl.exp2(score * scale - new_largest[:, None])
    total = total * shrink + tl.sum(weight, 1)
    if MASKED:
        value = tl.load(value_place, mask=is_token[:, None] & in_dim[None, :], other=0.0)
    elif PADDED:
        value = tl.load(value_place, mask=in_dim[None, :], other=0.0)
    else:
        value = tl.load(value_place)
    acc = tl.dot(weight.to(value.dtype), value, acc * shrink[:, None], input_precision="ieee")
    return acc, new_largest, total
