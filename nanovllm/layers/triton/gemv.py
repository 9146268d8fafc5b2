"""A linear map of one row: ordinary multiplications and sums, as the time is that of reading the weights."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.layers.triton.elementwise import silu
from nanovllm.layers.triton.launch_parameters import GemvParameters, gemv_parameters


@triton.jit
def gemv_kernel(
    x,  # [K]
    weight,  # [N, K]; [2 * N, K] if GATED: gate first, then up
    bias,  # as many as the rows of ``weight``, or None
    norm,  # [K]: weight of an RMSNorm of x, or None
    residual,  # [N], or None
    out,  # [N]
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    K_UP: tl.constexpr,  # K rounded up to a power of 2
    COLS: tl.constexpr,
    GATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """Some numbers of the result for one row. All weights are asked for at once, and before the kernel ahead has
    written ``x``."""
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    in_n = col < N
    k = tl.arange(0, K_UP)
    in_k = k < K
    mask = in_n[:, None] & in_k[None, :]
    place = weight + col[:, None].to(tl.int64) * K + k[None, :]
    weights = tl.load(place, mask=mask, other=0.0)
    if GATED:
        up_weights = tl.load(place + N * K, mask=mask, other=0.0)
    if norm is not None:
        norm_weights = tl.load(norm + k, mask=in_k, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.load(x + k, mask=in_k, other=0.0).to(tl.float32)
    if norm is not None:
        row = row * tl.rsqrt(tl.sum(row * row, 0) / K + eps) * norm_weights
    y = tl.sum(weights.to(tl.float32) * row[None, :], 1)
    if bias is not None:
        y += tl.load(bias + col, mask=in_n, other=0.0).to(tl.float32)
    if GATED:
        up = tl.sum(up_weights.to(tl.float32) * row[None, :], 1)
        if bias is not None:
            up += tl.load(bias + N + col, mask=in_n, other=0.0).to(tl.float32)
        y = silu(y) * up
    if residual is not None:
        y += tl.load(residual + col, mask=in_n, other=0.0).to(tl.float32)
    tl.store(out + col, y.to(out.dtype.element_ty), mask=in_n)


def gemv(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None,
    norm: Tensor | None,
    eps: float,
    is_gated: bool,
    residual: Tensor | None,
    parameters: GemvParameters | None,
    pdl: bool,
) -> None:
    """``fused_linear`` of one row into ``out`` ``[1, out_size]``."""
    in_size, out_size = x.shape[1], out.shape[1]
    cols, num_warps = parameters or gemv_parameters(out_size, in_size, is_gated, x.itemsize)
    gemv_kernel[(triton.cdiv(out_size, cols),)](
        x,
        weight,
        bias,
        norm,
        residual,
        out,
        eps,
        N=out_size,
        K=in_size,
        K_UP=triton.next_power_of_2(in_size),
        COLS=cols,
        GATED=is_gated,
        PDL=pdl,
        **launch_options(num_warps, pdl),
    )
