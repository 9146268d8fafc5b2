"""Paged decode attention: every program reads the same number of tokens, whatever the lengths of the sequences.

A decode step reads the whole KV cache of its sequences once, so its time is bytes over bandwidth, if all of the card
reads all of the time. Three things see to that:

- **Even shares.** The contexts, cut into tiles, form one long row; ``NUM_SHARES`` shares of equal length are cut out of
  it, whatever sequence begins or ends in them. ``plan_decode_kernel`` finds, once a step and on the card, where. A
  program computes one share for one KV head: long sequences are split over programs, short ones share one.
- **One launch a layer.** The parts of a split sequence are merged (log-sum-exp) by whichever program finishes last.
- **What comes before is done on the way.** Normalising and rotating queries and keys and storing the new key and value
  costs a program next to nothing, and saves a launch and a round trip through memory.

With ``PRELOAD``, a program asks for the first tile of each sequence early: of its first one while the kernel ahead
still runs, for all tokens but the newest were stored in earlier steps; of each further one before it finishes the one
at hand.

A sequence may have its first tokens attended to elsewhere (``prefix.py``): its own part then begins behind them, and
takes their result in as one more part.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.decode_parts import finish, merge_prefix
from nanovllm.attention.triton.decode_plan import find_tokens
from nanovllm.attention.triton.decode_tiles import load_tile, load_words, numbers_of
from nanovllm.attention.triton.heads import load_rotated
from nanovllm.attention.triton.online_softmax import attend_loaded_tile


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
    PRELOAD: tl.constexpr,
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
    row = tl.arange(0, ROWS)
    is_row = row < GROUP
    head = kv_head * GROUP + row
    one = tl.arange(0, 1)
    keys += kv_head * stride_head
    values += kv_head * stride_head

    # The plan and what it was made from, and the pool but for the newest tokens, were written long before the kernel
    # ahead, which need not be waited for to read them.
    num_tiles = tl.load(starts + num_seqs)
    share_len = tl.load(share_tiles)
    share_start = share * share_len
    share_end = tl.minimum(share_start + share_len, num_tiles)
    # More shares than tiles: the last ones have nothing to do.
    seq = tl.where(share_start < num_tiles, tl.load(first_seqs + share), num_seqs)
    seq_start, seq_end, position, begin, end = find_tokens(
        seq, share_start, share_end, starts, context_lens, prefix_lens, num_seqs, TILE
    )
    table = block_tables + tl.minimum(seq, num_seqs - 1).to(tl.int64) * stride_table
    if PRELOAD:
        key1, key2, value = load_words(
            keys, values, table, begin, end, stride_block, stride_token, HEAD_DIM, HALF_UP, BLOCK_SIZE, TILE
        )
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    while (seq < num_seqs) & (seq_start < share_end):
        if PDL:  # in the loop, so that what is the same in all its turns is computed before; further turns do not wait
            tl.extra.cuda.gdc_wait()
        angle = position.to(tl.int64) * HALF + half
        cos = tl.load(cos_table + angle, mask=in_half, other=0.0)[None, :]
        sin = tl.load(sin_table + angle, mask=in_half, other=0.0)[None, :]
        line = qkv + seq.to(tl.int64) * LINE
        if PREFIX:
            num_parts = tl.load(prefix_parts + seq)
        query1, query2 = load_rotated(
            line + head[:, None] * HEAD_DIM, q_norm, cos, sin, half, eps, is_row[:, None], NORM, HALF, dtype
        )
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, 2 * HALF_UP], tl.float32)

        if seq_end <= share_end:  # the newest token: store it, and begin with it
            block = tl.load(table + position // BLOCK_SIZE).to(tl.int64)
            new_value = tl.load(line + (NUM_HEADS + NUM_KV_HEADS + kv_head) * HEAD_DIM + dim, mask=in_dim, other=0.0)
            key_line = line + (NUM_HEADS + kv_head) * HEAD_DIM + one[:, None]
            new1, new2 = load_rotated(key_line, k_norm, cos, sin, half, eps, one[:, None] == 0, NORM, HALF, dtype)
            slot = block * stride_block + (position % BLOCK_SIZE) * stride_token
            tl.store(keys + slot + one[:, None] + half[None, :], new1, mask=in_half[None, :])
            tl.store(keys + slot + one[:, None] + HALF + half[None, :], new2, mask=in_half[None, :])
            tl.store(values + slot + dim, new_value.to(dtype), mask=in_dim)
            products = query1.to(tl.float32) * new1.to(tl.float32) + query2.to(tl.float32) * new2.to(tl.float32)
            largest = tl.sum(products, 1) * scale
            total = tl.full([ROWS], 1.0, tl.float32)
            acc += new_value.to(tl.float32)[None, :]
        if PREFIX:
            if seq_start >= share_start:  # the share has the first of the sequence's own tiles: take the prefix in
                acc, largest, total = merge_prefix(
                    acc, largest, total, prefix_out, prefix_lse, seq, num_parts, kv_head, max_seqs,
                    NUM_HEADS, GROUP, GROUP_UP if PRELOAD else ROWS, ROWS, HEAD_DIM, HALF_UP,
                )  # fmt: skip

        if PRELOAD:
            acc, largest, total = attend_loaded_tile(
                query1, query2, acc, largest, total, tl.trans(numbers_of(tl.trans(key1), dtype)),
                tl.trans(numbers_of(tl.trans(key2), dtype)), numbers_of(value, dtype), begin, end, scale, TILE,
            )  # fmt: skip
            begin += TILE
        for first in tl.range(begin, end, TILE, num_stages=NUM_STAGES):
            tile_key1, tile_key2, tile_value = load_tile(
                keys, values, table, first, end, stride_block, stride_token, HEAD_DIM, HALF_UP, BLOCK_SIZE, TILE
            )
            acc, largest, total = attend_loaded_tile(
                query1, query2, acc, largest, total, tile_key1, tile_key2, tile_value, first, end, scale, TILE
            )

        done, first_share, last_share = seq, seq_start // share_len, (seq_end - 1) // share_len
        seq += 1
        seq_start, seq_end, position, begin, end = find_tokens(
            seq, share_start, share_end, starts, context_lens, prefix_lens, num_seqs, TILE
        )
        table = block_tables + tl.minimum(seq, num_seqs - 1).to(tl.int64) * stride_table
        if PRELOAD:
            key1, key2, value = load_words(
                keys, values, table, begin, end, stride_block, stride_token, HEAD_DIM, HALF_UP, BLOCK_SIZE, TILE
            )
        finish(
            acc, largest, total, out, part_out, part_lse, arrivals, done, share, first_share, last_share, kv_head,
            NUM_KV_HEADS, GROUP, ROWS, HEAD_DIM, HALF_UP,
        )  # fmt: skip
    if PDL:  # without any work, too: a launch must not end before the one ahead
        tl.extra.cuda.gdc_wait()
