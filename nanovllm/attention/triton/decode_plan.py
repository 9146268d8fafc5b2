"""Which share of a decode step reads which tokens: planned once a step, looked up by every program of a layer."""

from __future__ import annotations

import triton
import triton.language as tl

SHARES_AT_ONCE = tl.constexpr(8)


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
):
    """Cut the row of all tiles into equal shares: a program for each SHARES_AT_ONCE of them."""
    seq = tl.arange(0, SEQS)
    is_seq = seq < num_seqs
    own_lens = tl.load(context_lens + seq, mask=is_seq, other=0) - tl.load(prefix_lens + seq, mask=is_seq, other=0)
    num_tiles = tl.cdiv(own_lens, TILE)
    end = tl.cumsum(num_tiles, 0)
    start = end - num_tiles
    total = tl.sum(num_tiles, 0)
    share_len = tl.maximum(tl.cdiv(total, NUM_SHARES), 1)
    share = tl.program_id(0) * SHARES_AT_ONCE + tl.arange(0, SHARES_AT_ONCE)
    is_begun = is_seq[None, :] & (start[None, :] <= (share * share_len)[:, None])  # [SHARES_AT_ONCE, SEQS]
    num_begun = tl.sum(is_begun.to(tl.int32), 1)
    tl.store(first_seqs + share, num_begun - 1, mask=share < NUM_SHARES)
    if tl.program_id(0) == 0:
        tl.store(starts + seq, start, mask=is_seq)
        tl.store(starts + num_seqs, total)
        tl.store(share_tiles, share_len)


@triton.jit
def look_up(seq, starts, context_lens, prefix_lens, num_seqs):
    """Where a sequence's tiles begin and end in the row of all tiles, its newest token's position, and how many leading
    tokens are attended to elsewhere; those of the last one if there is no such sequence."""
    seq = tl.minimum(seq, num_seqs - 1)
    position = tl.load(context_lens + seq) - 1
    return tl.load(starts + seq), tl.load(starts + seq + 1), position, tl.load(prefix_lens + seq)


@triton.jit
def find_tokens(seq_start, seq_end, share_start, share_end, position, prefix_len, TILE: tl.constexpr):
    """Where a share's tokens of a sequence begin and end. The newest is not among them: it is not in the pool yet, or
    is just being stored there."""
    begin = prefix_len + (tl.maximum(seq_start, share_start) - seq_start) * TILE
    end = tl.minimum(prefix_len + (tl.minimum(seq_end, share_end) - seq_start) * TILE, position)
    return begin, end
