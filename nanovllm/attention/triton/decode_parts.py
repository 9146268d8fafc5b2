"""Parts of a sequence's softmax that other programs compute: those of its prefix, and those of other shares."""

from __future__ import annotations

import triton
import triton.language as tl

from nanovllm.attention.triton.online_softmax import merge_part


@triton.jit
def merge_prefix(
    acc,
    largest,
    total,
    prefix_out,
    prefix_lse,
    prefix_parts,
    seq,
    kv_head,
    max_seqs,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
):
    """Take the parts of a sequence's prefix into its running softmax."""
    row = tl.arange(0, acc.shape[0])
    dim = tl.arange(0, 2 * HALF_UP)
    is_row = row < GROUP
    mask = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    for index in range(tl.load(prefix_parts + seq)):
        part = (index * max_seqs + seq).to(tl.int64) * NUM_HEADS + kv_head * GROUP + row
        lse = tl.load(prefix_lse + part, mask=is_row, other=0.0)
        mean = tl.load(prefix_out + part[:, None] * HEAD_DIM + dim[None, :], mask=mask, other=0.0)
        acc, largest, total = merge_part(acc, largest, total, mean, lse)
    return acc, largest, total


@triton.jit
def write_whole(
    acc,
    total,
    out,
    seq,
    kv_head,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
):
    """Write the result of a sequence's heads that share a KV head: the first ``GROUP`` rows."""
    row = tl.arange(0, acc.shape[0])
    dim = tl.arange(0, 2 * HALF_UP)
    place = out + (seq.to(tl.int64) * NUM_HEADS + kv_head * GROUP + row)[:, None] * HEAD_DIM + dim[None, :]
    mask = (row < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    tl.store(place, (acc / total[:, None]).to(out.dtype.element_ty), mask=mask)


@triton.jit
def write_part(
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
    GROUP_UP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
):
    """Write a share's part of a sequence. The last to arrive merges all of them."""
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    row = tl.arange(0, acc.shape[0])
    dim = tl.arange(0, 2 * HALF_UP)
    is_row = row < GROUP
    mask = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    part = (seq + share) * NUM_HEADS + kv_head * GROUP + row  # no two parts have the same sum: either it or both grow
    tl.store(part_out + part[:, None] * HEAD_DIM + dim[None, :], acc / total[:, None], mask=mask)
    tl.store(part_lse + part, largest + tl.log2(total), mask=is_row)
    tl.debug_barrier()
    arrival = arrivals + seq * NUM_KV_HEADS + kv_head
    if tl.atomic_add(arrival, 1, sem="acq_rel") == last_share - first_share:
        tl.debug_barrier()
        all_acc, all_total = read_parts(
            part_out, part_lse, seq, first_share, last_share, kv_head, NUM_HEADS, GROUP, GROUP_UP, HEAD_DIM, HALF_UP
        )
        write_whole(all_acc, all_total, out, seq, kv_head, NUM_HEADS, GROUP, HEAD_DIM, HALF_UP)
        tl.store(arrival, 0)


@triton.jit
def read_parts(
    part_out,
    part_lse,
    seq,
    first_share,
    last_share,
    kv_head,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_UP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_UP: tl.constexpr,
):
    """All parts of a sequence as one, ``[GROUP_UP, dims]`` and ``[GROUP_UP]``, several asked for at once."""
    AT_ONCE: tl.constexpr = 8
    row = tl.arange(0, GROUP_UP)
    dim = tl.arange(0, 2 * HALF_UP)
    mask = (row < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    acc = tl.zeros([GROUP_UP, 2 * HALF_UP], tl.float32)
    largest = tl.full([GROUP_UP], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_UP], tl.float32)
    for first in range(first_share, last_share + 1, AT_ONCE):
        means, lses = (), ()
        for index in tl.static_range(AT_ONCE):
            share = tl.zeros([GROUP_UP], tl.int32) + first + index
            is_part = share <= last_share
            part = (seq + share) * NUM_HEADS + kv_head * GROUP + row
            # Written by other programs a moment ago: past the cache of this multiprocessor.
            lse = tl.load(part_lse + part, mask=is_part & (row < GROUP), other=0.0, cache_modifier=".cg")
            lses += (tl.where(is_part, lse, float("-inf")),)
            place = part_out + part[:, None] * HEAD_DIM + dim[None, :]
            means += (tl.load(place, mask=mask & is_part[:, None], other=0.0, cache_modifier=".cg"),)
        for index in tl.static_range(AT_ONCE):
            acc, largest, total = merge_part(acc, largest, total, means[index], lses[index])
    return acc, total
