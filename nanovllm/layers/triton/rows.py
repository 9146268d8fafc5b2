"""A linear map of a few rows, on the units for matrix products."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.layers.triton.elementwise import silu
from nanovllm.layers.triton.launch_parameters import RowsParameters, rows_parameters


class WeightedRows(NamedTuple):
    """Rows on their way through an RMSNorm: times its weights already, but for the factor of each row, which is known
    when all of the row is. A product of them takes it in at its end, and so the norm needs no launch of its own."""

    rows: Tensor
    """``[num_rows, size]``: ``x * norm``."""
    squares: Tensor
    """``[num_parts, 16 or 32]`` float32: sums of the squares of parts of each row of ``x``, to be added up."""


@triton.jit(do_not_specialize=["num_rows"])
def rows_kernel(
    x,  # [num_rows, K], rows stride_x apart
    weight,  # [N, K]; [2 * N, K] if GATED: gate first, then up
    bias,  # as many as the rows of ``weight``, or None
    residual,  # [num_rows, N], or None
    squares,  # [NUM_PARTS, ROWS] float32: those of ``WeightedRows`` that x comes from, or None
    norm,  # [N]: weights of the norm that comes after, or None
    out,  # [num_rows, N]
    weighted,  # out [num_rows, N], like the next one if there is a norm
    out_squares,  # out [programs, ROWS] float32
    num_rows,
    stride_x,
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    SLICES: tl.constexpr,
    GATED: tl.constexpr,
    NUM_PARTS: tl.constexpr,  # rounded up to PARTS_UP, a power of 2
    PARTS_UP: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Some columns of the result for all rows, computed transposed: weights are the left factor. Each warp sums up its
    own slice of K; they meet at the end only."""
    SLICE: tl.constexpr = (K + SLICES * DEPTH - 1) // (SLICES * DEPTH) * DEPTH
    EVEN: tl.constexpr = K == SLICES * SLICE
    row = tl.arange(0, ROWS)
    is_row = row < num_rows
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    in_n = col < N
    slice_start = tl.arange(0, SLICES) * SLICE
    k = tl.arange(0, DEPTH)
    weight_place = weight + col[None, :, None].to(tl.int64) * K + slice_start[:, None, None] + k[None, None, :]
    x_place = x + row[None, None, :].to(tl.int64) * stride_x + slice_start[:, None, None] + k[None, :, None]
    acc = tl.zeros([SLICES, COLS, ROWS], tl.float32)
    acc_up = tl.zeros([SLICES, COLS, ROWS], tl.float32)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if squares is not None:
        part = tl.arange(0, PARTS_UP)[:, None]
        parts = tl.load(squares + part * ROWS + row[None, :], mask=part < NUM_PARTS, other=0.0)
    for start in tl.range(0, SLICE, DEPTH, num_stages=NUM_STAGES):
        weight_mask = in_n[None, :, None]
        x_mask = is_row[None, None, :]
        if not EVEN:
            weight_mask &= slice_start[:, None, None] + start + k[None, None, :] < K
            x_mask &= slice_start[:, None, None] + start + k[None, :, None] < K
        weights = tl.load(weight_place + start, mask=weight_mask, other=0.0)  # [SLICES, COLS, DEPTH]
        rows = tl.load(x_place + start, mask=x_mask, other=0.0)  # [SLICES, DEPTH, ROWS]
        acc = tl.dot(weights, rows, acc, input_precision="ieee")
        if GATED:
            up_weights = tl.load(weight_place + N * K + start, mask=weight_mask, other=0.0)
            acc_up = tl.dot(up_weights, rows, acc_up, input_precision="ieee")

    y = tl.sum(acc, 0)  # [COLS, ROWS]
    up = tl.sum(acc_up, 0)
    if squares is not None:
        factor = tl.rsqrt(tl.sum(parts, 0) / K + eps)[None, :]  # [1, ROWS]
        y *= factor
        up *= factor
    if bias is not None:
        y += tl.load(bias + col, mask=in_n, other=0.0).to(tl.float32)[:, None]
    if GATED:
        if bias is not None:
            up += tl.load(bias + N + col, mask=in_n, other=0.0).to(tl.float32)[:, None]
        y = silu(y) * up
    mask = is_row[None, :] & in_n[:, None]
    place = row[None, :].to(tl.int64) * N + col[:, None]
    if residual is not None:
        y += tl.load(residual + place, mask=mask, other=0.0).to(tl.float32)
    rounded = y.to(out.dtype.element_ty)
    tl.store(out + place, rounded, mask=mask)
    if norm is not None:
        wide = tl.where(mask, rounded.to(tl.float32), 0.0)
        norm_weights = tl.load(norm + col, mask=in_n, other=0.0).to(tl.float32)
        tl.store(weighted + place, (wide * norm_weights[:, None]).to(out.dtype.element_ty), mask=mask)
        tl.store(out_squares + tl.program_id(0) * ROWS + row, tl.sum(wide * wide, 0))


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
    num_parts = 1 if squares is None else len(squares)
    cols, depth, slices, num_stages = parameters or rows_parameters(out_size, in_size, is_gated, x.itemsize, x.device)
    num_programs, padded_rows = triton.cdiv(out_size, cols), 16 if num_rows <= 16 else 32
    weighted = None
    if next_norm is not None:
        parts = torch.empty(num_programs, padded_rows, dtype=torch.float32, device=x.device)
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
        DEPTH=depth,
        SLICES=slices,
        GATED=is_gated,
        NUM_PARTS=num_parts,
        PARTS_UP=triton.next_power_of_2(num_parts),
        NUM_STAGES=num_stages,
        PDL=pdl,
        **launch_options(slices, pdl),
    )
    return weighted
