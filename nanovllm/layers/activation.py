"""The gated activation of the feed-forward network."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` of the packed ``[..., 2 * size]``: gate first, then up. Returns ``[..., size]``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up
