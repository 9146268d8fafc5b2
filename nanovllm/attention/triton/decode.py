"""Paged decode attention: every program reads the same number of tokens, whatever the lengths of the sequences.

A decode step reads the whole KV cache of its sequences once, so its time is bytes over bandwidth, if all of the card
reads all of the time. Three things see to that:

- **Even shares.** The contexts, cut into tiles, form one long row; ``NUM_SHARES`` shares of equal length are cut out of
  it, whatever sequence begins or ends in them. ``plan_decode_kernel`` finds, once a step and on the card, where. A
  program computes one share for one KV head: long sequences are split over programs, short ones share one.
- **One launch a layer.** The parts of a split sequence are merged (log-sum-exp) by whichever program finishes last.
- **What comes before is done on the way.** Normalising and rotating queries and keys and storing the new key and value
  costs a program next to nothing, and saves a launch and a round trip through memory.

A sequence may have its first tokens attended to elsewhere (``prefix.py``): its own part then begins behind them, and
takes their result in as one more part.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.heads import load_rotated
from nanovllm.attention.triton.online_softmax import merge_part, tile_slots


@triton.jit(do_not_specialize=["num_seqs"])
def plan_decode_kernel(
    context_lens,  # [num_seqs] int32: tokens of each context, the new one included; 0 in rows that only fill up
    prefix_lens,  # [num_seqs] int32: leading tokens attended to elsewhere
    starts,  # out [num_seqs + 1] int32: where each sequence's tiles begin in the row of all tiles
    first_seqs,  # out [NUM_SHARES] int32: the sequence that each share begins in
    share_tiles,  # out [1] int32: tiles in a share
    num_seqs,
    NUM_SHARES: tl.constexpr,
    SEQS: tl.constexpr,  # num_seqs rounded up to a power of 2
    TILE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Cut the row of all tiles into equal shares. One program."""
    AT_ONCE: tl.constexpr = 8
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    seq = tl.arange(0, SEQS)
    is_seq = seq < num_seqs
    own_lens = tl.load(context_lens + seq, mask=is_seq, other=0) - tl.load(prefix_lens + seq, mask=is_seq, other=0)
    num_tiles = tl.cdiv(own_lens, TILE)
    end = tl.cumsum(num_tiles, 0)
    start = end - num_tiles
    total = tl.sum(num_tiles, 0)
    share_len = tl.maximum(tl.cdiv(total, NUM_SHARES), 1)
    tl.store(starts + seq, start, mask=is_seq)
    tl.store(starts + num_seqs, total)
    tl.store(share_tiles, share_len)
    for first in range(0, NUM_SHARES, AT_ONCE):
        share = first + tl.arange(0, AT_ONCE)
        is_begun = is_seq[None, :] & (start[None, :] <= (share * share_len)[:, None])  # [AT_ONCE, SEQS]
        num_begun = tl.sum(is_begun.to(tl.int32), 1)
        tl.store(first_seqs + share, num_begun - 1, mask=share < NUM_SHARES)


@triton.jit(do_not_specialize=["num_seqs", "stride_table"])
def decode_kernel(
    qkv,  # [num_seqs, (num_heads + 2 num_kv_heads) * HEAD_DIM]: the projections of the newest tokens
    q_norm,  # [HEAD_DIM], read if NORM
    k_norm,
    cos_table,  # [max_position, HALF] float32
    sin_table,
    keys,  # one layer's pool: [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]
    values,
    out,  # [num_seqs, num_heads, HEAD_DIM]
    part_out,  # [num_seqs + NUM_SHARES, num_heads, HEAD_DIM] float32: scratch
    part_lse,  # [num_seqs + NUM_SHARES, num_heads] float32: scratch
    arrivals,  # [num_seqs, NUM_KV_HEADS] int32: zeros before and after
    prefix_out,  # [MAX_PREFIX_PARTS, max_seqs, num_heads, HEAD_DIM] float32, read if PREFIX
    prefix_lse,  # [MAX_PREFIX_PARTS, max_seqs, num_heads] float32, read if PREFIX
    prefix_parts,  # [num_seqs] int32: parts that a sequence's prefix was computed in; 0: it has none; read if PREFIX
    prefix_lens,  # [num_seqs] int32
    block_tables,  # [num_seqs, max_blocks] int32
    context_lens,
    starts,
    first_seqs,
    share_tiles,
    num_seqs,
    max_seqs,
    eps,
    scale,  # head_dim ** -0.5 * log2(e)
    stride_block,
    stride_token,
    stride_head,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads that share a KV head
    ROWS: tl.constexpr,  # GROUP rounded up to what a matrix product takes
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,  # HEAD_DIM / 2 rounded up to a power of 2
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    NORM: tl.constexpr,
    PREFIX: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """One share of one KV head. Programs of the same share stand side by side: they read the same blocks."""
    HALF: tl.constexpr = HEAD_DIM // 2
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    LINE: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    share = tl.program_id(0) // NUM_KV_HEADS
    kv_head = tl.program_id(0) % NUM_KV_HEADS
    dtype: tl.constexpr = keys.dtype.element_ty
    half = tl.arange(0, HALF_UP)
    in_half = half < HALF
    dim = tl.arange(0, 2 * HALF_UP)
    in_dim = dim < HEAD_DIM
    offset = tl.arange(0, TILE)
    row = tl.arange(0, ROWS)
    is_row = row < GROUP
    head = kv_head * GROUP + row
    out_mask = is_row[:, None] & in_dim[None, :]
    one = tl.arange(0, 1)
    keys += kv_head * stride_head
    values += kv_head * stride_head

    # The plan was written long before the kernel ahead, which need not be waited for to read it.
    num_tiles = tl.load(starts + num_seqs)
    share_len = tl.load(share_tiles)
    share_start = share * share_len
    share_end = tl.minimum(share_start + share_len, num_tiles)
    # More shares than tiles: the last ones have nothing to do.
    seq = tl.where(share_start < num_tiles, tl.load(first_seqs + share), num_seqs)
    seq_start = tl.load(starts + seq)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    while (seq < num_seqs) & (seq_start < share_end):
        seq_end = tl.load(starts + seq + 1)
        position = tl.load(context_lens + seq) - 1
        prefix_len = tl.load(prefix_lens + seq)
        begin = prefix_len + (tl.maximum(seq_start, share_start) - seq_start) * TILE
        last_tile = tl.minimum(seq_end, share_end)
        # The newest token is not in the pool yet, or is being stored by this very program: it is taken from qkv.
        end = tl.minimum(prefix_len + (last_tile - seq_start) * TILE, position)
        angle = position.to(tl.int64) * HALF + half
        cos = tl.load(cos_table + angle, mask=in_half, other=0.0)[None, :]
        sin = tl.load(sin_table + angle, mask=in_half, other=0.0)[None, :]
        line = qkv + seq.to(tl.int64) * LINE
        table = block_tables + seq.to(tl.int64) * stride_table
        query1, query2 = load_rotated(
            line + head[:, None] * HEAD_DIM, q_norm, cos, sin, half, eps, is_row[:, None], NORM, HALF, dtype
        )
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, 2 * HALF_UP], tl.float32)

        if last_tile == seq_end:  # the newest token: store it, and begin with it
            key_line = line + (NUM_HEADS + kv_head) * HEAD_DIM + one[:, None]
            key1, key2 = load_rotated(key_line, k_norm, cos, sin, half, eps, one[:, None] == 0, NORM, HALF, dtype)
            value = tl.load(line + (NUM_HEADS + NUM_KV_HEADS + kv_head) * HEAD_DIM + dim, mask=in_dim, other=0.0)
            block = tl.load(table + position // BLOCK_SIZE).to(tl.int64)
            slot = block * stride_block + (position % BLOCK_SIZE) * stride_token
            tl.store(keys + slot + one[:, None] + half[None, :], key1, mask=in_half[None, :])
            tl.store(keys + slot + one[:, None] + HALF + half[None, :], key2, mask=in_half[None, :])
            tl.store(values + slot + dim, value.to(dtype), mask=in_dim)
            products = query1.to(tl.float32) * key1.to(tl.float32) + query2.to(tl.float32) * key2.to(tl.float32)
            largest = tl.sum(products, 1) * scale
            total = tl.full([ROWS], 1.0, tl.float32)
            acc += value.to(tl.float32)[None, :]
        if PREFIX:
            if begin == prefix_len:  # the first of the sequence's own tiles: take the prefix in
                for index in range(tl.load(prefix_parts + seq)):
                    part = (index * max_seqs + seq).to(tl.int64) * NUM_HEADS + head
                    lse = tl.load(prefix_lse + part, mask=is_row, other=0.0)
                    mean = tl.load(prefix_out + part[:, None] * HEAD_DIM + dim[None, :], mask=out_mask, other=0.0)
                    acc, largest, total = merge_part(acc, largest, total, mean, lse)

        for first in tl.range(begin, end, TILE, num_stages=NUM_STAGES):
            is_token = first + offset < end
            slots = tile_slots(table, first, offset, is_token, stride_block, stride_token, BLOCK_SIZE, TILE)
            key_mask = is_token[None, :] & in_half[:, None] if HALF < HALF_UP else is_token[None, :]
            key1 = tl.load(keys + slots[None, :] + half[:, None], mask=key_mask, other=0.0)
            key2 = tl.load(keys + slots[None, :] + HALF + half[:, None], mask=key_mask, other=0.0)
            score = tl.dot(query1, key1, input_precision="ieee")
            score = tl.dot(query2, key2, score, input_precision="ieee") * scale
            score = tl.where(is_token[None, :], score, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(score, 1))
            shrink = tl.exp2(largest - new_largest)
            weight = tl.exp2(score - new_largest[:, None])
            total = total * shrink + tl.sum(weight, 1)
            largest = new_largest
            value_mask = is_token[:, None] & in_dim[None, :] if HALF < HALF_UP else is_token[:, None]
            value = tl.load(values + slots[:, None] + dim[None, :], mask=value_mask, other=0.0)
            acc = tl.dot(weight.to(dtype), value, acc * shrink[:, None], input_precision="ieee")

        first_share = seq_start // share_len
        last_share = (seq_end - 1) // share_len
        out_place = out + (seq.to(tl.int64) * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
        if first_share == last_share:
            tl.store(out_place, (acc / total[:, None]).to(dtype), mask=out_mask)
        else:
            part = (seq + share) * NUM_HEADS + head  # no two parts have the same sum: either it or both grow
            tl.store(part_out + part[:, None] * HEAD_DIM + dim[None, :], acc / total[:, None], mask=out_mask)
            tl.store(part_lse + part, largest + tl.log2(total), mask=is_row)
            tl.debug_barrier()
            arrival = arrivals + seq * NUM_KV_HEADS + kv_head
            if tl.atomic_add(arrival, 1, sem="acq_rel") == last_share - first_share:
                tl.debug_barrier()
                largest = tl.full([ROWS], float("-inf"), tl.float32)
                total = tl.zeros([ROWS], tl.float32)
                acc = tl.zeros([ROWS, 2 * HALF_UP], tl.float32)
                for other in range(first_share, last_share + 1):
                    part = (seq + other) * NUM_HEADS + head
                    # Written by other programs a moment ago: past the cache of this multiprocessor.
                    lse = tl.load(part_lse + part, mask=is_row, other=0.0, cache_modifier=".cg")
                    place = part_out + part[:, None] * HEAD_DIM + dim[None, :]
                    mean = tl.load(place, mask=out_mask, other=0.0, cache_modifier=".cg")
                    acc, largest, total = merge_part(acc, largest, total, mean, lse)
                tl.store(out_place, (acc / total[:, None]).to(dtype), mask=out_mask)
                tl.store(arrival, 0)
        seq += 1
        seq_start = seq_end
