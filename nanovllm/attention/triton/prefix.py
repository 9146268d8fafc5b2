"""Attention to prefixes that several decoding sequences share: each block is read once, not once for each of them.

``prefix_groups.py`` finds the sequences and cuts the work into *items*: some members of a group, some tokens of their
prefix. The queries of the members stand in the rows of one matrix product. An item's result is one *part* of the
softmax of each of its members; ``decode_kernel`` takes the parts in with the sequence's own tokens (Juravsky et al.
2024, arXiv:2402.05099).
"""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.heads import load_rotated
from nanovllm.attention.triton.online_softmax import attend_tile, tile_slots


@triton.jit(do_not_specialize=["stride_table"])
def prefix_kernel(
    qkv,  # [num_seqs, (num_heads + 2 NUM_KV_HEADS) * HEAD_DIM]: the projections of the newest tokens
    q_norm,  # [HEAD_DIM], read if NORM
    cos_table,  # [max_position, HALF] float32
    sin_table,
    keys,  # one layer's pool: [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]
    values,
    part_out,  # out [max_parts, max_seqs, num_heads, HEAD_DIM] float32
    part_lse,  # out [max_parts, max_seqs, num_heads] float32: log-sum-exp, base 2
    num_items,  # [1] int32
    items,  # [max_items, 6] int32: first member, number of members, whose table, first token, end token, part
    members,  # int32: sequences, those of an item side by side
    block_tables,  # [num_seqs, max_blocks] int32
    context_lens,  # [num_seqs] int32, the newest token included
    max_seqs,
    eps,
    scale,  # head_dim ** -0.5 * log2(e)
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
    NORM: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """As many programs as there are take the items, each times all KV heads, in turn: their number is the card's."""
    HALF: tl.constexpr = HEAD_DIM // 2
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    LINE: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    PADDED: tl.constexpr = HALF < HALF_UP
    dtype: tl.constexpr = keys.dtype.element_ty
    half = tl.arange(0, HALF_UP)
    in_half = half < HALF
    dim = tl.arange(0, 2 * HALF_UP)
    in_dim = dim < HEAD_DIM
    # Queries come in halves, each padded: keys are read in the same order.
    key_dim = dim // HALF_UP * HALF + dim % HALF_UP
    in_key_dim = dim % HALF_UP < HALF
    offset = tl.arange(0, TILE)
    row = tl.arange(0, ROWS)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    for index in range(tl.program_id(0), tl.load(num_items) * NUM_KV_HEADS, tl.num_programs(0)):
        item = items + index // NUM_KV_HEADS * 6
        kv_head = index % NUM_KV_HEADS
        is_row = row < tl.load(item + 1) * GROUP
        table = block_tables + tl.load(item + 2).to(tl.int64) * stride_table
        begin = tl.load(item + 3)
        end = tl.load(item + 4)
        seq = tl.load(members + tl.load(item) + row // GROUP, mask=is_row, other=0)
        head = kv_head * GROUP + row % GROUP
        angle = (tl.load(context_lens + seq, mask=is_row, other=1) - 1).to(tl.int64)[:, None] * HALF + half[None, :]
        angle_mask = is_row[:, None] & in_half[None, :]
        cos = tl.load(cos_table + angle, mask=angle_mask, other=0.0)
        sin = tl.load(sin_table + angle, mask=angle_mask, other=0.0)
        line = (qkv + seq.to(tl.int64) * LINE + head * HEAD_DIM)[:, None]
        query1, query2 = load_rotated(line, q_norm, cos, sin, half, eps, is_row[:, None], NORM, HALF, dtype)
        query = tl.reshape(tl.permute(tl.join(query1, query2), (0, 2, 1)), (ROWS, 2 * HALF_UP))
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, 2 * HALF_UP], tl.float32)
        head_keys = keys + kv_head * stride_head
        head_values = values + kv_head * stride_head

        full_end = end - (end - begin) % TILE
        for first in tl.range(begin, full_end, TILE, num_stages=NUM_STAGES):
            is_token = first + offset < end
            slots = tile_slots(table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE, TILE)
            acc, largest, total = attend_tile(
                query, acc, largest, total, head_keys, head_values, slots, is_token, is_token[None, :],
                key_dim, in_key_dim, dim, in_dim, scale, False, PADDED,
            )  # fmt: skip
        if BLOCK_SIZE % TILE != 0:
            for first in tl.range(full_end, end, TILE, num_stages=1):
                is_token = first + offset < end
                slots = tile_slots(table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE, TILE)
                acc, largest, total = attend_tile(
                    query, acc, largest, total, head_keys, head_values, slots, is_token, is_token[None, :],
                    key_dim, in_key_dim, dim, in_dim, scale, True, PADDED,
                )  # fmt: skip

        place = (tl.load(item + 5) * max_seqs + seq).to(tl.int64) * NUM_HEADS + head
        out_place = part_out + place[:, None] * HEAD_DIM + dim[None, :]
        tl.store(out_place, acc / total[:, None], mask=is_row[:, None] & in_dim[None, :])
        tl.store(part_lse + place, largest + tl.log2(total), mask=is_row)
