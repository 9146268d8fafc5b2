"""Heads of queries and keys on their way from the projection into a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class HeadShape:
    """The heads that a token has on one card. Query head ``i`` reads KV head ``i // group``."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def half_up(self) -> int:
        """Half of a head, rounded up to what a kernel can hold: a power of 2."""
        return triton.next_power_of_2(self.head_dim // 2)

    @property
    def scale(self) -> float:
        """What scores are multiplied by, for powers of 2 instead of e."""
        return self.head_dim**-0.5 * LOG2_E


LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class HeadTransform:
    """What becomes of query and key heads between projection and attention: a norm per head, then the rotation."""

    cos: Tensor
    """``[max_position, head_dim / 2]`` float32: cosines of the angles of each position."""
    sin: Tensor
    q_norm: Tensor | None = None
    """``[head_dim]``: weights of the RMSNorm over each query head; None: there is none, nor for keys."""
    k_norm: Tensor | None = None
    eps: float = 1e-6


@triton.jit
def load_head(
    line,  # [rows, 1] pointers: where each row's head begins
    half,  # [padded half]: 0, 1, 2 ...
    rows_mask,  # [rows, 1]
    HALF: tl.constexpr,
):
    """The two halves of heads as the projection wrote them, ``[rows, padded half]`` each."""
    mask = rows_mask & (half < HALF)[None, :]
    first = tl.load(line + half[None, :], mask=mask, other=0.0)
    second = tl.load(line + HALF + half[None, :], mask=mask, other=0.0)
    return first, second


@triton.jit
def load_norm(norm, half, NORM: tl.constexpr, HALF: tl.constexpr):
    """The two halves of a norm's weights, ``[1, padded half]`` each; nothing to be used if there is no norm."""
    if NORM:
        first = tl.load(norm + half, mask=half < HALF, other=0.0)[None, :].to(tl.float32)
        second = tl.load(norm + HALF + half, mask=half < HALF, other=0.0)[None, :].to(tl.float32)
        return first, second
    else:
        return half, half


@triton.jit
def rotate(
    halves,  # of heads, see ``load_head``
    weights,  # of a norm, see ``load_norm``
    cos,  # [rows or 1, padded half]
    sin,
    eps,
    NORM: tl.constexpr,
    HALF: tl.constexpr,
    dtype: tl.constexpr,
):
    """The two halves of heads, ``[rows, padded half]`` each, normalised and rotated by their token's angles."""
    first, second = halves[0].to(tl.float32), halves[1].to(tl.float32)
    if NORM:  # in the steps, and with the roundings, of layers.norm.RMSNorm
        mean = (tl.sum(first * first, 1) + tl.sum(second * second, 1)) / (2 * HALF)
        scale = tl.rsqrt(mean + eps)[:, None]
        first = ((first * scale).to(dtype).to(tl.float32) * weights[0]).to(dtype).to(tl.float32)
        second = ((second * scale).to(dtype).to(tl.float32) * weights[1]).to(dtype).to(tl.float32)
    return (first * cos - second * sin).to(dtype), (second * cos + first * sin).to(dtype)


@triton.jit
def load_rotated(
    line, norm, cos, sin, half, eps, rows_mask, NORM: tl.constexpr, HALF: tl.constexpr, dtype: tl.constexpr
):
    """``load_head``, then ``rotate``."""
    halves = load_head(line, half, rows_mask, HALF)
    return rotate(halves, load_norm(norm, half, NORM, HALF), cos, sin, eps, NORM, HALF, dtype)
