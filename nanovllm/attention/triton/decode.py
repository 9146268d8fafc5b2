"""Paged decode attention: every program reads the same number of tokens, whatever the lengths of the sequences.

A decode step reads the whole KV cache of its sequences once, so its time is bytes over bandwidth, if all of the card
reads all of the time. Three things see to that:

- **Even shares.** The contexts, cut into tiles, form one long row; ``NUM_SHARES`` shares of equal length are cut out of
  it, whatever sequence begins or ends in them. ``plan_decode_kernel`` finds, once a step and on the card, where. A
  program computes one share for one KV head: long sequences are split over programs, short ones share one.
- **One launch a layer.** The parts of a split sequence are merged (log-sum-exp) by whichever program finishes last.
- **What comes before is done on the way.** Normalising and rotating queries and keys and storing the new key and value
  costs a program next to nothing, and saves a launch and a round trip through memory.

With few sequences it is latency that counts, of loads that wait for each other. So a program asks for all that a
sequence needs at once, and for what the kernel ahead does not write before it waits for that one.

A sequence may have its first tokens attended to elsewhere (``prefix.py``): its own part then begins behind them, and
takes their result in as one more part.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.decode_parts import merge_prefix, write_part, write_whole
from nanovllm.attention.triton.decode_plan import find_tokens, look_up
from nanovllm.attention.triton.heads import load_head, load_norm, rotate
from nanovllm.attention.triton.online_softmax import prefetch_tile, tile_slots


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
    GROUP_UP: tl.constexpr,  # rounded up to a power of 2
    ROWS: tl.constexpr,  # GROUP_UP, or what a matrix product takes at least
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,  # HEAD_DIM / 2 rounded up to a power of 2
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    NORM: tl.constexpr,
    PREFIX: tl.constexpr,
    PREFETCHES: tl.constexpr,
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
    one = tl.arange(0, 1)
    keys += kv_head * stride_head
    values += kv_head * stride_head

    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    q_weights = load_norm(q_norm, half, NORM, HALF)
    k_weights = load_norm(k_norm, half, NORM, HALF)
    # The plan and what it was made from were written long before the kernel ahead, which need not be waited for.
    num_tiles = tl.load(starts + num_seqs)
    share_len = tl.load(share_tiles)
    share_start = share * share_len
    share_end = tl.minimum(share_start + share_len, num_tiles)
    # More shares than tiles: the last ones have nothing to do.
    seq = tl.where(share_start < num_tiles, tl.load(first_seqs + share), num_seqs)
    seq_start, seq_end, position, prefix_len = look_up(seq, starts, context_lens, prefix_lens, num_seqs)
    if PDL:
        if PREFETCHES:
            begin, end = find_tokens(seq_start, seq_end, share_start, share_end, position, prefix_len, TILE)
            table = block_tables + tl.minimum(seq, num_seqs - 1).to(tl.int64) * stride_table
            # No more than two tiles: a long context would push itself out of the cache, and the wait would come late.
            end = tl.where(seq < num_seqs, tl.minimum(end, begin + 2 * TILE), begin)
            for first in tl.range(begin, end, TILE, num_stages=1):
                prefetch_tile(keys, values, table, first, end, stride_block, stride_token, HEAD_DIM, BLOCK_SIZE, TILE)
        tl.extra.cuda.gdc_wait()
    while (seq < num_seqs) & (seq_start < share_end):
        line = qkv + seq.to(tl.int64) * LINE
        table = block_tables + seq.to(tl.int64) * stride_table
        is_newest = one + seq_end <= share_end  # [1]: whether the share has the newest token
        # All at once, before anything is done with it.
        query = load_head(line + head[:, None] * HEAD_DIM, half, is_row[:, None], HALF)
        new_key = load_head(line + (NUM_HEADS + kv_head) * HEAD_DIM + one[:, None], half, is_newest[:, None], HALF)
        value_place = line + (NUM_HEADS + NUM_KV_HEADS + kv_head) * HEAD_DIM + dim
        new_value = tl.load(value_place, mask=in_dim & is_newest, other=0.0)
        angle = position.to(tl.int64) * HALF + half
        cos = tl.load(cos_table + angle, mask=in_half, other=0.0)[None, :]
        sin = tl.load(sin_table + angle, mask=in_half, other=0.0)[None, :]
        block = tl.load(table + position // BLOCK_SIZE).to(tl.int64)
        begin, end = find_tokens(seq_start, seq_end, share_start, share_end, position, prefix_len, TILE)
        query1, query2 = rotate(query, q_weights, cos, sin, eps, NORM, HALF, dtype)
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, 2 * HALF_UP], tl.float32)

        if seq_end <= share_end:  # store the newest token, and begin with it
            key1, key2 = rotate(new_key, k_weights, cos, sin, eps, NORM, HALF, dtype)
            slot = block * stride_block + (position % BLOCK_SIZE) * stride_token
            tl.store(keys + slot + one[:, None] + half[None, :], key1, mask=in_half[None, :])
            tl.store(keys + slot + one[:, None] + HALF + half[None, :], key2, mask=in_half[None, :])
            tl.store(values + slot + dim, new_value.to(dtype), mask=in_dim)
            products = query1.to(tl.float32) * key1.to(tl.float32) + query2.to(tl.float32) * key2.to(tl.float32)
            largest = tl.sum(products, 1) * scale
            total = tl.full([ROWS], 1.0, tl.float32)
            acc += new_value.to(tl.float32)[None, :]
        if PREFIX:
            if begin == prefix_len:  # the first of the sequence's own tiles: take the prefix in
                acc, largest, total = merge_prefix(
                    acc, largest, total, prefix_out, prefix_lse, prefix_parts, seq, kv_head, max_seqs,
                    NUM_HEADS, GROUP, HEAD_DIM, HALF_UP,
                )  # fmt: skip

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
        if first_share == last_share:
            write_whole(acc, total, out, seq, kv_head, NUM_HEADS, GROUP, HEAD_DIM, HALF_UP)
        else:
            write_part(
                acc, largest, total, out, part_out, part_lse, arrivals, seq, share, first_share, last_share, kv_head,
                NUM_KV_HEADS, GROUP, GROUP_UP, HEAD_DIM, HALF_UP,
            )  # fmt: skip
        seq += 1
        seq_start, seq_end, position, prefix_len = look_up(seq, starts, context_lens, prefix_lens, num_seqs)
