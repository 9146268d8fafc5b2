"""Paged attention of chunks of prompts: many new tokens for each sequence, over all the tokens before them.

Queries stand in tiles of ``ROWS`` rows: some tokens, times the heads that share a KV head, so that a tile reads each
key and value once for all of these heads, and a short chunk still fills its tile. The tiles of a ragged batch are
listed by the host, those with the longest contexts first. Keys and values, the chunk's too, come from the pool.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.online_softmax import attend_tile, tile_slots


@triton.jit(do_not_specialize=["stride_table"])
def prefill_kernel(
    query,  # [num_tokens, num_heads, HEAD_DIM], rotated; a token's heads side by side, tokens stride_query apart
    keys,  # one layer's pool: [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM], the chunk's tokens in it
    values,
    out,  # [num_tokens, num_heads, HEAD_DIM]
    tiles,  # [num_tiles, 4] int32: row of its first token, number of tokens, position of the first, sequence
    block_tables,  # [num_seqs, max_blocks] int32
    scale,  # head_dim ** -0.5 * log2(e)
    stride_query,
    stride_block,
    stride_token,
    stride_head,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads that share a KV head
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,  # HEAD_DIM / 2 rounded up to a power of 2
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """One tile of queries of one KV head."""
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    PADDED: tl.constexpr = HEAD_DIM < 2 * HALF_UP
    tile = tiles + tl.program_id(0) // NUM_KV_HEADS * 4
    kv_head = tl.program_id(0) % NUM_KV_HEADS
    dim = tl.arange(0, 2 * HALF_UP)
    in_dim = dim < HEAD_DIM
    offset = tl.arange(0, TILE)
    row = tl.arange(0, ROWS)
    token = row // GROUP
    head = kv_head * GROUP + row % GROUP
    keys += kv_head * stride_head
    values += kv_head * stride_head
    first_row = tl.load(tile).to(tl.int64)
    num_tokens = tl.load(tile + 1)
    first_position = tl.load(tile + 2)
    table = block_tables + tl.load(tile + 3).to(tl.int64) * stride_table
    position = first_position + token
    mask = (token < num_tokens)[:, None] & in_dim[None, :]
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if num_tokens == 0:  # an empty tile
        return
    place = (first_row + token) * stride_query + head * HEAD_DIM
    heads = tl.load(query + place[:, None] + dim[None, :], mask=mask, other=0.0)  # [ROWS, padded HEAD_DIM]
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, 2 * HALF_UP], tl.float32)

    # Tokens that all rows see need no mask; the last ones, up to the chunk's own, do.
    end = first_position + num_tokens
    full_end = (first_position + 1) // TILE * TILE
    for first in tl.range(0, full_end, TILE, num_stages=NUM_STAGES):
        is_token = first + offset < end
        slots = tile_slots(table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE, TILE)
        acc, largest, total = attend_tile(
            heads, acc, largest, total, keys, values, slots, is_token, is_token[None, :],
            dim, in_dim, dim, in_dim, scale, False, PADDED,
        )  # fmt: skip
    for first in tl.range(full_end, end, TILE, num_stages=1):
        is_token = first + offset < end
        visible = (first + offset)[None, :] <= position[:, None]
        slots = tile_slots(table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE, TILE)
        acc, largest, total = attend_tile(
            heads, acc, largest, total, keys, values, slots, is_token, visible,
            dim, in_dim, dim, in_dim, scale, True, PADDED,
        )  # fmt: skip

    out_place = ((first_row + token) * NUM_HEADS + head) * HEAD_DIM
    tl.store(out + out_place[:, None] + dim[None, :], (acc / total[:, None]).to(out.dtype.element_ty), mask=mask)
