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
from nanovllm.layers.triton.rows import WeightedRows, multiply_rows

MAX_FUSED_ROWS = 16
"""Up to here these kernels are faster than cuBLAS with kernels between its products."""


def fused_linear(
    x: Tensor | WeightedRows,
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

    ``x`` ``[num_rows, in_size]``, whose rows may lie apart; or what ``fused_linear_before_norm`` made of several rows,
    whose norm then counts, in this one launch. ``weight`` ``[out_size, in_size]``; ``bias`` as long as ``weight``.
    ``norm`` ``[in_size]``: weight of an RMSNorm of ``x`` with ``eps``; None: there is no norm. ``is_gated``: ``weight``
    holds gate and up, ``[2 * out_size, in_size]``, and ``f(gate, up) = silu(gate) * up``; else ``f`` changes nothing.
    ``residual`` ``[num_rows, out_size]``. All contiguous but ``x``, all of one type, sums in float32.
    ``gemv_parameters`` count for one row, ``rows_parameters`` for more. ``pdl``: start while the kernel before ends
    (programmatic dependent launch; on a Hopper card or newer). Returns ``[num_rows, out_size]``.
    """
    rows = x.rows if isinstance(x, WeightedRows) else x
    num_rows = len(rows)
    assert 1 <= num_rows <= 32, "for a few rows only"
    assert rows.stride(1) == 1, "the numbers of a row lie side by side"
    assert weight.is_contiguous(), "rows lie side by side"
    assert residual is None or residual.is_contiguous(), "rows lie side by side"
    out = torch.empty(num_rows, weight.shape[0] // (1 + is_gated), dtype=rows.dtype, device=rows.device)
    options = {"bias": bias, "eps": eps, "is_gated": is_gated, "residual": residual, "pdl": pdl}
    if num_rows == 1:
        assert not isinstance(x, WeightedRows), "one row is normed where it is multiplied"
        gemv(x, weight, out, norm=norm, parameters=gemv_parameters, **options)
        return out
    if norm is not None:
        assert not isinstance(x, WeightedRows), "there is one norm, not two"
        # Within the product of several rows the norm would cost more than its own launch: each program would have to
        # read and sum up all of them before it can begin.
        x = rms_norm(x, norm, eps, pdl=pdl)
    multiply_rows(x, weight, out, next_norm=None, parameters=rows_parameters, **options)
    return out


def fused_linear_before_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    norm: Tensor,
    *,
    rows_parameters: RowsParameters | None = None,
    pdl: bool = False,
) -> tuple[Tensor, WeightedRows]:
    """``residual + x W^T + bias`` of 2 to 32 rows, and the same on its way through an RMSNorm of the weights ``norm``
    ``[out_size]``, for the ``fused_linear`` that comes next: one launch. Else as there.

    What lies between norm and product is rounded at another place than elsewhere: ``x * norm`` instead of ``x`` over
    its size. In float16, whose range is small, that may overflow where the norm itself would not.
    """
    assert 2 <= len(x) <= 32, "for a few rows only"
    out = torch.empty(len(x), weight.shape[0], dtype=x.dtype, device=x.device)
    weighted = multiply_rows(
        x, weight, out, bias=bias, eps=0.0, is_gated=False, residual=residual, next_norm=norm,
        parameters=rows_parameters, pdl=pdl,
    )  # fmt: skip
    assert weighted is not None, "a norm comes after it"
    return out, weighted
