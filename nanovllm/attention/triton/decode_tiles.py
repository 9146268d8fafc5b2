"""Tiles of keys and values on their way from the pool into registers."""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.online_softmax import tile_slots


@triton.jit
def load_tile(
    keys,
    values,
    table,
    first,
    end,
    stride_block,
    stride_token,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """The tokens from ``first`` on, but none from ``end`` on: both halves of their keys, ``[HALF_UP, TILE]`` each, and
    their values ``[TILE, 2 * HALF_UP]``."""
    HALF: tl.constexpr = HEAD_DIM // 2
    half = tl.arange(0, HALF_UP)
    dim = tl.arange(0, 2 * HALF_UP)
    offset = tl.arange(0, TILE)
    is_token = first + offset < end
    slots = tile_slots(table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE, TILE)
    key_mask = is_token[None, :] & (half < HALF)[:, None] if HALF < HALF_UP else is_token[None, :]
    key1 = tl.load(keys + slots[None, :] + half[:, None], mask=key_mask, other=0)
    key2 = tl.load(keys + slots[None, :] + HALF + half[:, None], mask=key_mask, other=0)
    value_mask = is_token[:, None] & (dim < HEAD_DIM)[None, :] if HALF < HALF_UP else is_token[:, None]
    value = tl.load(values + slots[:, None] + dim[None, :], mask=value_mask, other=0)
    return key1, key2, value


@triton.jit
def load_words(
    keys,
    values,
    table,
    first,
    end,
    stride_block,
    stride_token,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """``load_tile``, two numbers of 16 bits to a word: numbers that wait in registers for a later turn of a loop are
    shuffled about once they have come, if they are smaller than these, and so waited for too early."""
    if keys.dtype.element_ty.primitive_bitwidth == 16 and HEAD_DIM % 4 == 0:
        word: tl.constexpr = tl.pointer_type(tl.int32)
        key1, key2, value = load_tile(
            keys.to(word, bitcast=True), values.to(word, bitcast=True), table, first, end,
            stride_block // 2, stride_token // 2, HEAD_DIM // 2, HALF_UP // 2, BLOCK_SIZE, TILE,
        )  # fmt: skip
    else:
        key1, key2, value = load_tile(
            keys, values, table, first, end, stride_block, stride_token, HEAD_DIM, HALF_UP, BLOCK_SIZE, TILE
        )
    return key1, key2, value


@triton.jit
def numbers_of(words, dtype: tl.constexpr):
    """``[rows, numbers]`` of ``[rows, words]``."""
    if words.dtype == tl.int32:
        low = words.to(tl.int16).to(dtype, bitcast=True)
        high = (words >> 16).to(tl.int16).to(dtype, bitcast=True)
        words = tl.reshape(tl.join(low, high), (words.shape[0], 2 * words.shape[1]))
    return words
