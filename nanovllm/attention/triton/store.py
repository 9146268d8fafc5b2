"""From the projections to the pool: heads of new tokens are normalised and rotated, keys and values stored."""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.heads import load_rotated


@triton.jit(do_not_specialize=["num_tokens"])
def store_kernel(
    qkv,  # [num_tokens, (num_heads + 2 NUM_KV_HEADS) * HEAD_DIM]
    q_norm,  # [HEAD_DIM], read if NORM
    k_norm,
    cos_table,  # [max_position, HALF] float32
    sin_table,
    positions,  # [num_tokens]
    slots,  # [num_tokens]: the slot in the pool that takes a token; below 0: none does
    query,  # out [num_tokens, num_heads, HEAD_DIM], tokens stride_query apart; may be the queries in ``qkv``
    keys,  # out: one layer's pool [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]
    values,
    num_tokens,
    eps,
    stride_query,
    stride_block,
    stride_token,
    stride_head,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads that share a KV head
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,  # HEAD_DIM / 2 rounded up to a power of 2
    BLOCK_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    """Some tokens of one KV head and of the query heads that share it: their angles are loaded once."""
    HALF: tl.constexpr = HEAD_DIM // 2
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    LINE: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    dtype: tl.constexpr = keys.dtype.element_ty
    kv_head = tl.program_id(1)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    is_token = token < num_tokens
    half = tl.arange(0, HALF_UP)
    dim = tl.arange(0, 2 * HALF_UP)
    half_mask = is_token[:, None] & (half < HALF)[None, :]
    dim_mask = is_token[:, None] & (dim < HEAD_DIM)[None, :]
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    angle = tl.load(positions + token, mask=is_token, other=0).to(tl.int64)[:, None] * HALF + half[None, :]
    cos = tl.load(cos_table + angle, mask=half_mask, other=0.0)
    sin = tl.load(sin_table + angle, mask=half_mask, other=0.0)
    line = (qkv + token * LINE)[:, None]
    for index in tl.static_range(GROUP):
        head = kv_head * GROUP + index
        first, second = load_rotated(
            line + head * HEAD_DIM, q_norm, cos, sin, half, eps, is_token[:, None], NORM, HALF, dtype
        )
        place = query + (token * stride_query + head * HEAD_DIM)[:, None] + half[None, :]
        tl.store(place, first, mask=half_mask)
        tl.store(place + HALF, second, mask=half_mask)

    slot = tl.load(slots + token, mask=is_token, other=-1).to(tl.int64)
    half_mask &= (slot >= 0)[:, None]
    dim_mask &= (slot >= 0)[:, None]
    slot = (slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * stride_token + kv_head * stride_head)[:, None]
    key_line = line + (NUM_HEADS + kv_head) * HEAD_DIM
    first, second = load_rotated(key_line, k_norm, cos, sin, half, eps, is_token[:, None], NORM, HALF, dtype)
    tl.store(keys + slot + half[None, :], first, mask=half_mask)
    tl.store(keys + slot + HALF + half[None, :], second, mask=half_mask)
    value_line = line + (NUM_HEADS + NUM_KV_HEADS + kv_head) * HEAD_DIM
    value = tl.load(value_line + dim[None, :], mask=dim_mask, other=0.0)
    tl.store(values + slot + dim[None, :], value.to(dtype), mask=dim_mask)
