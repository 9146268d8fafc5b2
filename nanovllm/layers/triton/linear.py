"""Linear maps of a few rows, with what stands before and after them in a decoder: one launch for each map, or two.

With so few rows a product's time is that of reading the weights, if their loads start early and are many; libraries are
made for more rows. Before the product may stand an RMSNorm of the input; after it a bias, the gated activation
``silu(gate) * up`` of a weight that holds both, and a residual.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanovllm.layers.triton.elementwise import rms_norm
from nanovllm.layers.triton.gemv import gemv
from nanovllm.layers.triton.launch_parameters import GemvParameters, RowsParameters
from nanovllm.layers.triton.rows import multiply_rows

MAX_FUSED_ROWS = 16
"""Up to here these kernels are faster than cuBLAS with kernels between its products."""


def fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    is_gated: bool = False,
    residual: Tensor | None = None,
    gemv_parameters: GemvParameters | None = None,
    rows_parameters: RowsParameters | None = None,
    pdl: bool = False,
) -> Tensor:
    """``residual + f(RMSNorm(x) W^T + bias)`` for up to 32 rows: one launch, or two if several rows are to be normed.

    ``x`` ``[num_rows, in_size]``, whose rows may lie apart; ``weight`` ``[out_size, in_size]``; ``bias`` as long as
    ``weight``. ``norm`` ``[in_size]``: weight of an RMSNorm of ``x`` with ``eps``; None: there is no norm.
    ``is_gated``: ``weight`` holds gate and up, ``[2 * out_size, in_size]``, and ``f(gate, up) = silu(gate) * up``; else
    ``f`` changes nothing. ``residual`` ``[num_rows, out_size]``. All contiguous but ``x``, all of one type, sums in
    float32. ``gemv_parameters`` count for one row, ``rows_parameters`` for more. ``pdl``: start while the kernel before
    ends (programmatic dependent launch; on a Hopper card or newer). Returns ``[num_rows, out_size]``.
    """
    num_rows = len(x)
    assert 1 <= num_rows <= 32, "for a few rows only"
    assert x.stride(1) == 1, "the numbers of a row lie side by side"
    assert weight.is_contiguous(), "rows lie side by side"
    assert residual is None or residual.is_contiguous(), "rows lie side by side"
    out = torch.empty(num_rows, weight.shape[0] // (1 + is_gated), dtype=x.dtype, device=x.device)
    if norm is not None and num_rows > 1:
        # Within the product of several rows the norm would cost more than its own launch: its factors are needed
        # between the loads and the matrix units, which otherwise meet in shared memory.
        x, norm = rms_norm(x, norm, eps, pdl=pdl), None
    options = {"bias": bias, "is_gated": is_gated, "residual": residual, "pdl": pdl}
    if num_rows == 1:
        gemv(x, weight, out, norm=norm, eps=eps, parameters=gemv_parameters, **options)
    else:
        multiply_rows(x, weight, out, parameters=rows_parameters, **options)
    return out
