"""How each kernel of the layers is cut into programs: the one place to look at when a card is to be made faster.

The defaults were measured on an NVIDIA H200 with the weights of Qwen3-0.6B, bfloat16. Every launch takes other
parameters as an argument.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from nanovllm.attention.triton.card import fitting_stages, multiprocessors


class GemvParameters(NamedTuple):
    """A program computes ``cols`` numbers of the output."""

    cols: int
    num_warps: int


class RowsParameters(NamedTuple):
    """A program computes ``cols`` columns of the output. Its depth is cut into ``slices``, one for each warp, and each
    of them into steps of ``depth``."""

    cols: int
    depth: int
    slices: int
    num_stages: int


class DrawParameters(NamedTuple):
    """A program looks at ``tile`` logits of one row."""

    tile: int
    num_warps: int


def gemv_parameters(out_size: int, in_size: int) -> GemvParameters:
    """For one row: some 500 programs or more, each with enough to load."""
    cols = 8 if out_size >= 4096 else 4 if out_size >= 2048 else 2
    num_warps = 2 if in_size <= 1024 else 8 if in_size <= 16384 else 16
    return GemvParameters(cols if in_size <= 8192 else 1, num_warps)


def rows_parameters(out_size: int, in_size: int, is_gated: bool, itemsize: int, device: torch.device) -> RowsParameters:
    """For a few rows: four warps, which share the depth; fewer columns each where the card would not be full."""
    slices = 4
    cols, depth, num_stages = 16, 128, 4
    if out_size <= cols * multiprocessors(device):
        cols, depth, num_stages = 8, 256, 3
    depth = depth * 2 // itemsize
    while depth > 32 and in_size % (slices * depth) != 0:
        depth //= 2
    stage_bytes = slices * depth * (cols * (1 + is_gated) + 32) * itemsize
    return RowsParameters(cols, depth, slices, fitting_stages(num_stages, stage_bytes, 0, device))


def draw_parameters(num_rows: int) -> DrawParameters:
    """Small tiles while there are few rows to keep the card busy with."""
    return DrawParameters(tile=1024, num_warps=4) if num_rows <= 16 else DrawParameters(tile=4096, num_warps=8)
