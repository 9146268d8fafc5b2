"""Random weights for a shape: benchmarks and tests without a download."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def fill_with_random_weights(model: nn.Module, seed: int) -> None:
    """Give matrices the spread 0.02 that such models are initialised with, vectors the value 1 (norms) or 0
    (biases). The same seed on the same kind of device gives the same weights."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            parameter.normal_(0.0, 0.02, generator=generator)
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
