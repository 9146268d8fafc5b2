"""The horizontal axis that most figures share: steps, or seconds; all of a run, or a part of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nanovllm.errors import UserError
from viz.durations import unit_of
from viz.figures.canvas import count_whole
from viz.figures.history import BoolArray, FloatArray, History, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

StepRange = tuple[int, int | None]
"""The first and the last step, None for the last one that there is."""


@dataclass(frozen=True)
class StepAxis:
    """The steps that are drawn, and where.

    ``positions`` are theirs in the history, without gaps. Each step takes the room from ``left`` to ``right``, in the
    axis's unit; a step whose end leaves the engine without a request ends there, any other where the next begins.
    """

    positions: range
    left: FloatArray
    right: FloatArray
    label: str
    by_time: bool
    unit_s: float
    bounds: tuple[float, float]
    """The least and the greatest place that is shown."""

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def slice(self) -> slice:
        """What cuts the drawn steps out of a column of ``Steps``."""
        return slice(self.positions.start, self.positions.stop)

    def at_time(self, time_s: float) -> float:
        """Where a time stands on an axis of time."""
        return time_s / self.unit_s

    def samples(self, limit: int) -> IntArray:
        """A history position for each of at most ``limit`` columns of equal width, -1 where no step ran.

        Up to ``limit`` steps each get a column of their own, if the axis counts steps.
        """
        first, last = self.bounds
        num_columns = limit if self.by_time else min(limit, round(last - first))
        width = (last - first) / num_columns
        centres = first + width * (np.arange(num_columns) + 0.5)
        found = np.searchsorted(self.left, centres, side="right") - 1
        return np.where(centres < self.right[found], found + self.positions.start, -1)

    @property
    def gaps(self) -> FloatArray:
        """How wide the gap is behind each drawn step but the last, 0 where there is none."""
        return self.left[1:] - self.right[:-1]

    def wide_gaps(self, limit: int) -> BoolArray:
        """Which of the ``gaps`` are drawn: all; or where there are more than ``limit``, those as wide as a column of
        ``limit`` columns."""
        gaps = self.gaps
        is_gap: BoolArray = gaps > 0
        if is_gap.sum() > limit:
            is_gap = gaps * limit > self.bounds[1] - self.bounds[0]
        return is_gap

    def groups(self, limit: int) -> IntArray:
        """Starts, counted from the first drawn step, of groups of consecutive steps with none of the ``wide_gaps``
        between them.

        From each gap on they are counted out anew, as many a group as make ``limit`` groups of a run without a gap.
        """
        size = -(-len(self) // limit)
        begins = np.flatnonzero(np.append(True, self.wide_gaps(limit)))
        since_begin = np.arange(len(self)) - np.repeat(begins, np.diff(begins, append=len(self)))
        return np.flatnonzero(since_begin % size == 0)


def step_axis(history: History, steps: StepRange | None = None, by_time: bool = False) -> StepAxis:
    """The axis of ``history``. Raises ``UserError`` if no step lies in the range ``steps``."""
    table = history.steps
    positions = _positions(table.number, steps)
    chosen = slice(positions.start, positions.stop)
    if by_time:
        span_s = float(table.end_s[positions[-1]] - table.start_s[positions[0]])
        unit, unit_s = unit_of(span_s)
        left, right = table.start_s[chosen] / unit_s, table.end_s[chosen] / unit_s
        right[:-1] = np.where(table.is_idle_after[chosen][:-1], right[:-1], left[1:])
        label = f"time, {unit}"
    else:
        left, label, unit_s = table.number[chosen].astype(np.float64) - 0.5, "step", 1.0
        right = left + 1
    first = float(left[0])
    bounds = first, max(float(right[-1]), first + 1e-9 * max(1.0, abs(first)))
    return StepAxis(positions, left, right, label, by_time, unit_s, bounds)


def common_bounds(axes: Iterable[StepAxis]) -> list[StepAxis]:
    """The same axes, each showing as much as all of them together."""
    axes = list(axes)
    bounds = min(axis.bounds[0] for axis in axes), max(axis.bounds[1] for axis in axes)
    return [replace(axis, bounds=bounds) for axis in axes]


def along_steps(ax: Axes, axis: StepAxis) -> None:
    """Give the axes this horizontal axis."""
    ax.set_xlim(*axis.bounds)
    ax.set_xlabel(axis.label)
    if not axis.by_time:
        count_whole(ax.xaxis)


def _positions(numbers: IntArray, steps: StepRange | None) -> range:
    low, high = (0, None) if steps is None else steps
    first = int(np.searchsorted(numbers, low))
    stop = len(numbers) if high is None else int(np.searchsorted(numbers, high, side="right"))
    if first >= stop:
        raise UserError(f"there is no such step: the trace has steps {numbers[0]} to {numbers[-1]}")
    return range(first, stop)
