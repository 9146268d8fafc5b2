"""How each kernel of the layers is cut into programs: the one place to look at when a card is to be made faster.

The defaults were measured on an NVIDIA H200 with the weights of Qwen3-0.6B, bfloat16. Every launch takes other
parameters as an argument.
"""

from __future__ import annotations

from typing import NamedTuple


class GemvParameters(NamedTuple):
    """A program computes ``cols`` numbers of the output."""

    cols: int
    num_warps: int


class RowsParameters(NamedTuple):
    """A program computes ``cols`` columns of the output: 8, 16 or 32. Its depth is cut into ``slices``, one for each
    warp, of which a thread holds ``at_once`` steps of 32 at a time."""

    cols: int
    slices: int
    at_once: int


class DrawParameters(NamedTuple):
    """A program looks at ``tile`` logits of one row."""

    tile: int
    num_warps: int


def gemv_parameters(out_size: int, in_size: int) -> GemvParameters:
    """For one row: some 500 programs or more, each with enough to load."""
    cols = 8 if out_size >= 4096 else 4 if out_size >= 2048 else 2
    num_warps = 2 if in_size <= 1024 else 8 if in_size <= 16384 else 16
    return GemvParameters(cols if in_size <= 8192 else 1, num_warps)


_ROWS_WEIGHT_BYTES = 2**16
"""The most that a program holds of the weights."""
_ROWS_REGISTERS = 256
"""A thread's, for weights and rows. The compiler does with fewer than that: not all have come when some are used."""
_ROWS_REGISTERS_OF_16_SLICES = 112


def rows_parameters(out_size: int, in_size: int, is_gated: bool, num_rows: int, itemsize: int) -> RowsParameters:
    """For a few rows, 16 or 32: what a program has to do in as few steps as its registers allow."""
    slices = 1
    while slices < 16 and slices * (512 if is_gated else 384) < in_size:
        slices *= 2
    cols = 8
    while not is_gated and cols < 32 and 2 * cols * in_size * itemsize <= _ROWS_WEIGHT_BYTES and 128 * cols <= out_size:
        cols *= 2
    num_steps = -(-in_size // (32 * slices))
    step_registers = (cols * (1 + is_gated) + num_rows) // 8 * 2 * itemsize
    most_registers = _ROWS_REGISTERS if slices <= 8 else _ROWS_REGISTERS_OF_16_SLICES
    num_groups = -(-num_steps * step_registers // most_registers)
    return RowsParameters(cols, slices, -(-num_steps // num_groups))


def draw_parameters(num_rows: int) -> DrawParameters:
    """Small tiles while there are few rows to keep the card busy with."""
    return DrawParameters(tile=1024, num_warps=4) if num_rows <= 16 else DrawParameters(tile=4096, num_warps=8)
