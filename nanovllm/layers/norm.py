"""Root mean square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nanovllm.layers.linear import empty_parameter


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension.

    The mean and the quotient are computed in float32 whatever the type of ``x``; the product with ``weight`` is in
    the type of ``x`` again, as the models were trained.
    """

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = empty_parameter(size, dtype=dtype)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """``[..., size]`` -> the same shape and type."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)
