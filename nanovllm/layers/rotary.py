"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in the half-split form of Hugging Face checkpoints."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nanovllm.model_config import RopeSpec


class Rotation(NamedTuple):
    """The angles of a step's tokens: cosine and sine, each ``[num_tokens, 1, head_dim / 2]`` float32."""

    cos: Tensor
    sin: Tensor


class RotaryEmbedding:
    """The table of angles for all positions below ``max_position``, in float32 on torch's current device."""

    def __init__(self, rope: RopeSpec, head_dim: int, max_position: int) -> None:
        angles = torch.outer(torch.arange(max_position).float(), inverse_frequencies(rope, head_dim))
        self._cos = angles.cos()[:, None]  # [max_position, 1, head_dim / 2]
        self._sin = angles.sin()[:, None]

    @property
    def table(self) -> tuple[Tensor, Tensor]:
        """Cosine and sine of all positions, each ``[max_position, head_dim / 2]`` float32, contiguous."""
        return self._cos[:, 0], self._sin[:, 0]

    def __call__(self, positions: Tensor) -> Rotation:
        """``positions``: ``[num_tokens]``."""
        return Rotation(self._cos[positions], self._sin[positions])


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians that each pair of dimensions turns from one position to the next: ``[head_dim / 2]`` float32."""
    exponents = torch.arange(0, head_dim, 2).float() / head_dim
    frequencies = 1.0 / rope.theta**exponents
    if rope.type == "linear":
        return frequencies / rope.factor
    if rope.type == "llama3":
        return _stretch_long_waves(frequencies, rope)
    return frequencies


def _stretch_long_waves(frequencies: Tensor, rope: RopeSpec) -> Tensor:
    """The scaling of Llama 3.1: waves longer than the original context allows are stretched by ``factor``, short
    ones are kept, and those between are blended."""
    wavelengths = 2 * math.pi / frequencies
    waves_in_context = rope.original_max_position_embeddings / wavelengths
    kept = (waves_in_context - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - kept) * frequencies / rope.factor + kept * frequencies
    stretched = torch.where(waves_in_context < rope.low_freq_factor, frequencies / rope.factor, blended)
    return torch.where(waves_in_context > rope.high_freq_factor, frequencies, stretched)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn each head of ``x`` ``[num_tokens, num_heads, head_dim]`` by its token's angles; dimension ``i`` is paired
    with ``i + head_dim / 2``. Computed in float32, returned in the type of ``x``."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = rotation
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
