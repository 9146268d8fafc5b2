"""Parts of a sequence's softmax that other programs compute: those of its prefix, and those of other shares."""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.online_softmax import merge_part, merge_parts


@triton.jit
def merge_prefix(
    acc,
    largest,
    total,
    prefix_out,
    prefix_lse,
    seq,
    num_parts,
    kv_head,
    max_seqs,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    PART_ROWS: tl.constexpr,  # of ROWS, as many as one part takes
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
):
    """Take the parts of a sequence's prefix into its running softmax, ``ROWS / PART_ROWS`` at once."""
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, 2 * HALF_UP)
    member = row % PART_ROWS
    for first in range(0, num_parts, ROWS // PART_ROWS):
        index = first + row // PART_ROWS
        is_head = (member < GROUP) & (index < num_parts)
        place = (index * max_seqs + seq).to(tl.int64) * NUM_HEADS + kv_head * GROUP + member
        lse = tl.load(prefix_lse + place, mask=is_head, other=0.0)
        mask = is_head[:, None] & (dim < HEAD_DIM)[None, :]
        mean = tl.load(prefix_out + place[:, None] * HEAD_DIM + dim[None, :], mask=mask, other=0.0)
        if PART_ROWS < ROWS:
            mean, lse = merge_parts(mean, tl.where(index < num_parts, lse, float("-inf")), PART_ROWS)
        acc, largest, total = merge_part(acc, largest, total, mean, lse)
    return acc, largest, total


@triton.jit
def finish(
    acc,
    largest,
    total,
    out,
    part_out,
    part_lse,
    arrivals,
    seq,
    share,
    first_share,  # that has a part of the sequence
    last_share,
    kv_head,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
):
    """Write a share's result for a sequence: the whole one, or a part, of which the last to arrive merges them all."""
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    row = tl.arange(0, ROWS)
    is_row = row < GROUP
    head = kv_head * GROUP + row
    dim = tl.arange(0, 2 * HALF_UP)
    mask = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    dtype: tl.constexpr = out.dtype.element_ty
    out_place = out + (seq.to(tl.int64) * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
    if first_share == last_share:
        tl.store(out_place, (acc / total[:, None]).to(dtype), mask=mask)
    else:
        part = (seq + share) * NUM_HEADS + head  # no two parts have the same sum: either it or both grow
        tl.store(part_out + part[:, None] * HEAD_DIM + dim[None, :], acc / total[:, None], mask=mask)
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
                mean = tl.load(place, mask=mask, other=0.0, cache_modifier=".cg")
                acc, largest, total = merge_part(acc, largest, total, mean, lse)
            tl.store(out_place, (acc / total[:, None]).to(dtype), mask=mask)
            tl.store(arrival, 0)
