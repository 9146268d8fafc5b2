"""Linear maps, alone and several packed into one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def empty_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A weight without a value yet: the loader fills it. Inference only, so no gradient."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)


class Linear(nn.Module):
    """``y = x W^T + b``, with ``weight`` ``[out_size, in_size]`` and, on demand, ``bias`` ``[out_size]``."""

    def __init__(self, in_size: int, out_size: int, *, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = empty_parameter(out_size, in_size, dtype=dtype)
        self.bias = empty_parameter(out_size, dtype=dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in_size]`` -> ``[..., out_size]``."""
        return F.linear(x, self.weight, self.bias)


class PackedLinear(Linear):
    """Several maps of the same input as one product, for example queries, keys and values.

    ``out_sizes`` names the parts as checkpoints do, in the order in which their rows are stacked in ``weight``.
    """

    def __init__(self, in_size: int, out_sizes: Mapping[str, int], *, bias: bool, dtype: torch.dtype) -> None:
        super().__init__(in_size, sum(out_sizes.values()), bias=bias, dtype=dtype)
        self.out_sizes = dict(out_sizes)

    def parts(self, packed: Tensor) -> dict[str, Tensor]:
        """Views of the parts of ``weight`` or ``bias``, by name."""
        return dict(zip(self.out_sizes, packed.split(list(self.out_sizes.values())), strict=True))
