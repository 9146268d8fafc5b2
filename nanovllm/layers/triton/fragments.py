"""Factors of small matrix products, loaded straight into the registers that the matrix units take them from.

Of each line of a factor, 4 threads hold the depth in turn, a run of 2 or 4 numbers each. Read in that order, a thread
would ask for 4 or 8 bytes at a time; so factors usually take the way through shared memory. But a product does not care
in which order its depth is summed up, if both factors keep to the same one: here each thread takes 8 numbers that lie
side by side, and they stand for several of its runs. Loads are of 16 bytes, and between load and product nothing moves.

That counts for numbers of 2 bytes; for others the products are the same, on the usual way.
"""

from __future__ import annotations

import triton
import triton.language as tl

STEP = tl.constexpr(32)
"""Numbers of depth that a slice takes at a time."""
_RUN = tl.constexpr(4 if triton.__version__.startswith(("3.6.", "3.7.")) else 2)
"""Numbers in a run: Triton's choice for a product with a factor that was joined from several loads, which rows are
here. Were it another one, numbers would be moved about, and the result the same."""


@triton.jit
def load_step(place, stride, line, num_lines, in_depth, LINES: tl.constexpr):
    """A step of 8, 16 or 32 lines, all slices: ``[8 * slices, STEP]``, with a dimension of 2 behind it for each
    doubling. ``place``, ``line``: pointers ``[8 * slices, STEP]`` to, and numbers ``[8 * slices, 1]`` of, the first 8
    lines; ``in_depth``: what exists of the depth, or True."""
    tl.static_assert(LINES == 8 or LINES == 16 or LINES == 32)
    step = tl.load(place, mask=(line < num_lines) & in_depth, other=0.0)
    if LINES > 8:
        step = tl.join(step, tl.load(place + 8 * stride, mask=(line + 8 < num_lines) & in_depth, other=0.0))
    if LINES > 16:
        third = tl.load(place + 16 * stride, mask=(line + 16 < num_lines) & in_depth, other=0.0)
        fourth = tl.load(place + 24 * stride, mask=(line + 24 < num_lines) & in_depth, other=0.0)
        step = tl.join(step, tl.join(third, fourth))
    return step


@triton.jit
def load_steps(place, stride, line, num_lines, k, DEPTH: tl.constexpr, LINES: tl.constexpr, NUM_STEPS: tl.constexpr):
    """NUM_STEPS steps, a tuple of them: all are asked for at once. ``k``: where ``place`` is in a depth of DEPTH
    numbers; None: all of it exists."""
    steps = ()
    for step in tl.static_range(NUM_STEPS):
        in_depth = True if k is None else k + step * STEP < DEPTH
        steps += (load_step(place + step * STEP, stride, line, num_lines, in_depth, LINES),)
    return steps


@triton.jit
def as_left(step, SLICES: tl.constexpr, LINES: tl.constexpr):
    """What ``load_step`` returned, as the left factor: ``[SLICES, LINES, STEP]``."""
    # [slices, 8 lines, 4 threads, their runs, a run, doublings of the lines ...]
    if LINES == 8:
        step = tl.permute(tl.reshape(step, (SLICES, 8, 4, 8 // _RUN, _RUN)), (0, 1, 3, 2, 4))
    elif LINES == 16:
        step = tl.permute(tl.reshape(step, (SLICES, 8, 4, 8 // _RUN, _RUN, 2)), (0, 5, 1, 3, 2, 4))
    else:
        step = tl.permute(tl.reshape(step, (SLICES, 8, 4, 8 // _RUN, _RUN, 2, 2)), (0, 6, 5, 1, 3, 2, 4))
    return tl.reshape(step, (SLICES, LINES, STEP))


@triton.jit
def as_right(step, SLICES: tl.constexpr, LINES: tl.constexpr):
    """What ``load_step`` returned, as the right factor: ``[SLICES, STEP, LINES]``."""
    return tl.permute(as_left(step, SLICES, LINES), (0, 2, 1))


@triton.jit
def multiply_steps(
    acc, left, right, NUM_STEPS: tl.constexpr, SLICES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """``acc`` ``[SLICES, ROWS, COLS]`` and the products of what ``load_steps`` returned of both factors."""
    for step in tl.static_range(NUM_STEPS):
        rows, cols = as_left(left[step], SLICES, ROWS), as_right(right[step], SLICES, COLS)
        acc = tl.dot(rows, cols, acc, input_precision="ieee")
    return acc
