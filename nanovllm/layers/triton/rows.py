"""A linear map of a few rows, on the units for matrix products."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.layers.triton.elementwise import silu
from nanovllm.layers.triton.launch_parameters import RowsParameters, rows_parameters


@triton.jit(do_not_specialize=["num_rows"])
def rows_kernel(
    x,  # [num_rows, K], rows stride_x apart
    weight,  # [N, K]; [2 * N, K] if GATED: gate first, then up
    bias,  # as many as the rows of ``weight``, or None
    residual,  # [num_rows, N], or None
    out,  # [num_rows, N]
    num_rows,
    stride_x,
    N: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    SLICES: tl.constexpr,
    GATED: tl.constexpr,
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
    tl.store(out + place, y.to(out.dtype.element_ty), mask=mask)


def multiply_rows(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None,
    is_gated: bool,
    residual: Tensor | None,
    parameters: RowsParameters | None,
    pdl: bool,
) -> None:
    """``fused_linear``, without a norm, of up to 32 rows into ``out`` ``[num_rows, out_size]``."""
    (num_rows, in_size), out_size = x.shape, out.shape[1]
    cols, depth, slices, num_stages = parameters or rows_parameters(in_size, is_gated, x.itemsize, x.device)
    rows_kernel[(triton.cdiv(out_size, cols),)](
        x,
        weight,
        bias,
        residual,
        out,
        num_rows,
        x.stride(0),
        N=out_size,
        K=in_size,
        ROWS=16 if num_rows <= 16 else 32,
        COLS=cols,
        DEPTH=depth,
        SLICES=slices,
        GATED=is_gated,
        NUM_STAGES=num_stages,
        PDL=pdl,
        **launch_options(slices, pdl),
    )
