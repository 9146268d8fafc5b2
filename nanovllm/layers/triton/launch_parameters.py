"""How each kernel of the layers is cut into programs: the one place to look at when a card is to be made faster.

The defaults were measured on an NVIDIA H200 with the weights of Qwen3-0.6B, bfloat16; what they are for other sizes
follows from how many registers and programs there are. Every launch takes other parameters as an argument.
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


def gemv_parameters(out_size: int, in_size: int, is_gated: bool, itemsize: int) -> GemvParameters:
    """For one row: some 500 programs or more, each with as much to load as half of its registers hold."""
    cols = 8 if out_size >= 4096 else 4 if out_size >= 2048 else 2
    num_warps = 2 if in_size <= 1024 else 8 if in_size <= 16384 else 16
    held_bytes = (1 + is_gated) * (1 << (in_size - 1).bit_length()) * itemsize // (32 * num_warps)  # for each column
    while cols > 1 and cols * held_bytes > 512:
        cols //= 2
    return GemvParameters(cols, num_warps)


_ROWS_PROGRAMS = 128
"""So many are enough for a product: with more columns each, the rows are read fewer times."""
_ROWS_WEIGHT_BYTES = 2**16
"""Half as many programs will do if a program's weights are no more than this."""
_ROWS_REGISTERS = 256
"""A thread's, for weights and rows that are all asked for at once. The compiler does with fewer: some have been used
before others come."""
_ROWS_REGISTERS_IN_TURN = 96
"""Where they are not: so few that two programs share a multiprocessor, and one loads while the other computes."""


def rows_parameters(out_size: int, in_size: int, is_gated: bool, num_rows: int, itemsize: int) -> RowsParameters:
    """For a few rows, 16 or 32: what a program has to do in as few steps as its registers allow."""
    slices = 1
    while slices < 8 and slices * (512 if is_gated else 384) < in_size:
        slices *= 2
    cols = 16 if is_gated and in_size > 2048 and out_size >= 16 * _ROWS_PROGRAMS else 8
    while not is_gated and cols < 32:
        are_few_weights = 2 * cols * in_size * itemsize <= _ROWS_WEIGHT_BYTES
        if out_size < 2 * cols * _ROWS_PROGRAMS // (1 + are_few_weights):
            break
        cols *= 2
    num_steps = -(-in_size // (32 * slices))
    if itemsize > 2:  # not for the matrix units: each thread needs what others hold, too
        return RowsParameters(8, slices, min(num_steps, 2))
    step_registers = (cols * (1 + is_gated) + num_rows) // 8 * 2 * itemsize
    if num_steps * step_registers <= _ROWS_REGISTERS:
        return RowsParameters(cols, slices, num_steps)
    return RowsParameters(cols, slices, max(_ROWS_REGISTERS_IN_TURN // step_registers, 1))


def draw_parameters(num_rows: int) -> DrawParameters:
    """Small tiles while there are few rows to keep the card busy with."""
    return DrawParameters(tile=1024, num_warps=4) if num_rows <= 16 else DrawParameters(tile=4096, num_warps=8)
