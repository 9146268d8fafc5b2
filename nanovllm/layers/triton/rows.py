"""A linear map of a few rows, on the units for matrix products."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.layers.triton.elementwise import silu
from nanovllm.layers.triton.fragments import STEP, load_steps, multiply_steps
from nanovllm.layers.triton.launch_parameters import RowsParameters, rows_parameters


class WeightedRows(NamedTuple):
    """Rows on their way through an RMSNorm: times its weights already, but for the factor of each row, which is known
    when all of the row is. A product of them takes it in at its end, and so the norm needs no launch of its own."""

    rows: Tensor
    """``[num_rows, size]``: ``x * norm``."""
    squares: Tensor
    """``[16 or 32, num_parts]`` float32: sums of the squares of parts of each row of ``x``, to be added up."""


@triton.jit(do_not_specialize=["num_rows"])
def rows_kernel(
    x,  # [num_rows, K], rows stride_x apart
    weight,  # [N, K]; [2 * N, K] if GATED: gate first, then up
    bias,  # as many as the rows of ``weight``, or None
    residual,  # [num_rows, N], or None
    squares,  # [ROWS, NUM_PARTS] float32: those of ``WeightedRows`` that x comes from, or None
    norm,  # [N]: weights of the norm that comes after, or None
    out,  # [num_rows, N]
    weighted,  # out [num_rows, N], like the next one if there is a norm
    out_squares,  # out [ROWS, programs] float32
    num_rows,
    stride_x,
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    SLICES: tl.constexpr,
    AT_ONCE: tl.constexpr,  # steps that a thread holds at a time
    GATED: tl.constexpr,
    NUM_PARTS: tl.constexpr,  # rounded up to PARTS_UP, a power of 2
    PARTS_UP: tl.constexpr,
    PDL: tl.constexpr,
):
    """Some columns of the result for all rows. Each warp sums up its own slice of K; they meet at the end only.
    Weights, all if they fit, are asked for before the kernel ahead has written ``x``."""
    DEPTH: tl.constexpr = AT_ONCE * STEP
    SLICE: tl.constexpr = (K + SLICES * DEPTH - 1) // (SLICES * DEPTH) * DEPTH
    slice_line = tl.arange(0, SLICES * 8)[:, None]
    line = slice_line % 8
    k = slice_line // 8 * SLICE + tl.arange(0, STEP)[None, :]
    weight_line = tl.program_id(0) * COLS + line
    weight_place = weight + weight_line.to(tl.int64) * K + k
    up_place = weight_place + N * K
    x_place = x + line.to(tl.int64) * stride_x + k
    row = tl.arange(0, ROWS)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    in_n = col < N
    mask = (row < num_rows)[:, None] & in_n[None, :]
    place = row[:, None].to(tl.int64) * N + col[None, :]

    in_k = None if K == SLICES * SLICE else k

    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    weights = load_steps(weight_place, K, weight_line, N, in_k, K, COLS, AT_ONCE)
    if GATED:
        up_weights = load_steps(up_place, K, weight_line, N, in_k, K, COLS, AT_ONCE)
    if norm is not None:
        norm_weights = tl.load(norm + col, mask=in_n, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()

    if squares is not None:
        part = tl.arange(0, PARTS_UP)[None, :]
        parts = tl.load(squares + row[:, None] * NUM_PARTS + part, mask=part < NUM_PARTS, other=0.0)
    if residual is not None:
        before = tl.load(residual + place, mask=mask, other=0.0).to(tl.float32)
    rows = load_steps(x_place, stride_x, line, num_rows, in_k, K, ROWS, AT_ONCE)
    nothing = tl.zeros([SLICES, ROWS, COLS], tl.float32)
    acc = multiply_steps(nothing, rows, weights, AT_ONCE, SLICES, ROWS, COLS)
    acc_up = nothing
    if GATED:
        acc_up = multiply_steps(nothing, rows, up_weights, AT_ONCE, SLICES, ROWS, COLS)
    for start in tl.range(DEPTH, SLICE, DEPTH, num_stages=1):
        late_k = None if K == SLICES * SLICE else k + start
        late_rows = load_steps(x_place + start, stride_x, line, num_rows, late_k, K, ROWS, AT_ONCE)
        late_weights = load_steps(weight_place + start, K, weight_line, N, late_k, K, COLS, AT_ONCE)
        if GATED:
            late_up = load_steps(up_place + start, K, weight_line, N, late_k, K, COLS, AT_ONCE)
            acc_up = multiply_steps(acc_up, late_rows, late_up, AT_ONCE, SLICES, ROWS, COLS)
        acc = multiply_steps(acc, late_rows, late_weights, AT_ONCE, SLICES, ROWS, COLS)

    y = tl.sum(acc, 0)  # [ROWS, COLS]
    up = tl.sum(acc_up, 0)
    if squares is not None:
        factor = tl.rsqrt(tl.sum(parts, 1) / K + eps)[:, None]
        y *= factor
        up *= factor
    if bias is not None:
        y += tl.load(bias + col, mask=in_n, other=0.0).to(tl.float32)[None, :]
    if GATED:
        if bias is not None:
            up += tl.load(bias + N + col, mask=in_n, other=0.0).to(tl.float32)[None, :]
        y = silu(y) * up
    if residual is not None:
        y += before
    rounded = y.to(out.dtype.element_ty)
    tl.store(out + place, rounded, mask=mask)
    if norm is not None:
        wide = tl.where(mask, rounded.to(tl.float32), 0.0)
        tl.store(weighted + place, (wide * norm_weights[None, :]).to(out.dtype.element_ty), mask=mask)
        tl.store(out_squares + row * tl.num_programs(0) + tl.program_id(0), tl.sum(wide * wide, 1))


def multiply_rows(
    x: Tensor | WeightedRows,
    weight: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None,
    eps: float,
    is_gated: bool,
    residual: Tensor | None,
    next_norm: Tensor | None,
    parameters: RowsParameters | None,
    pdl: bool,
) -> WeightedRows | None:
    """``fused_linear``, without a norm, of up to 32 rows into ``out`` ``[num_rows, out_size]``. Returns the result on
    its way through the norm of the weights ``next_norm``, if there is one."""
    x, squares = (x.rows, x.squares) if isinstance(x, WeightedRows) else (x, None)
    (num_rows, in_size), out_size = x.shape, out.shape[1]
    num_parts = 1 if squares is None else squares.shape[1]
    padded_rows = 16 if num_rows <= 16 else 32
    cols, slices, at_once = parameters or rows_parameters(out_size, in_size, is_gated, padded_rows, x.itemsize)
    num_programs = triton.cdiv(out_size, cols)
    weighted = None
    if next_norm is not None:
        parts = torch.empty(padded_rows, num_programs, dtype=torch.float32, device=x.device)
        weighted = WeightedRows(torch.empty_like(out), parts)
    rows_kernel[(num_programs,)](
        x,
        weight,
        bias,
        residual,
        squares,
        next_norm,
        out,
        None if weighted is None else weighted.rows,
        None if weighted is None else weighted.squares,
        num_rows,
        x.stride(0),
        eps,
        N=out_size,
        K=in_size,
        ROWS=padded_rows,
        COLS=cols,
        SLICES=slices,
        AT_ONCE=at_once,
        GATED=is_gated,
        NUM_PARTS=num_parts,
        PARTS_UP=triton.next_power_of_2(num_parts),
        PDL=pdl,
        **launch_options(slices, pdl),
    )
    return weighted
