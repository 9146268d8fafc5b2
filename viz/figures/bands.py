"""Quantities over the steps, drawn as bands upon each other; long runs are averaged into columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viz.figures.axis import StepAxis, along_steps
from viz.figures.canvas import GROUND, INK, MUTED, SMALL_PT, TEXT_PT, Key, count_whole, size_pt, style
from viz.figures.history import FloatArray, History, IntArray
from viz.figures.owners import ink_on
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 700


@dataclass(frozen=True)
class Columns:
    """Groups of consecutive steps, one a column; groups of one step while there are few enough. No gap is inside, but
    for those that are too many and too narrow to be seen."""

    axis: StepAxis
    starts: IntArray
    left: FloatArray
    right: FloatArray
    num_hidden_gaps: int
    """So many are painted over."""

    @property
    def is_averaged(self) -> bool:
        """Whether columns hold more than one step."""
        return len(self.starts) < len(self.axis)

    def mean(self, values: NDArray[np.int64], *, by_width: bool = True) -> FloatArray:
        """The mean of each column over its steps, weighted with their widths on the axis unless told otherwise."""
        chosen = values[self.axis.slice].astype(np.float64)
        weights = np.maximum(self.axis.right - self.axis.left, 1e-12) if by_width else np.ones(len(self.axis))
        return np.add.reduceat(chosen * weights, self.starts) / np.add.reduceat(weights, self.starts)

    def outline(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """x and y of a line with a level piece for each column, broken where no step ran."""
        is_gap = np.append(self.left[1:] > self.right[:-1], False)
        x = np.stack((self.left, self.right, self.right), axis=1).ravel()
        y = np.stack((values, values, np.where(is_gap, np.nan, values)), axis=1).ravel()
        return x, y

    def at(self, x: FloatArray, values: FloatArray) -> FloatArray:
        """The values at these places, NaN where no step ran."""
        found = np.clip(np.searchsorted(self.left, x, side="right") - 1, 0, len(self.left) - 1)
        return np.where(x <= self.right[found], values[found], np.nan)


def columns_of(axis: StepAxis, limit: int = MAX_COLUMNS) -> Columns:
    """The columns of an axis: at most ``limit``, and at most as many more for times without a step."""
    starts, is_drawn = axis.groups(limit), axis.wide_gaps(limit)
    last = starts[1:] - 1
    right = np.where(is_drawn[last], axis.right[last], axis.left[starts[1:]])
    num_hidden_gaps = int((axis.gaps > 0).sum() - is_drawn.sum())
    return Columns(axis, starts, axis.left[starts], np.append(right, axis.right[-1]), num_hidden_gaps)


@dataclass(frozen=True)
class Band:
    """The room between two outlines."""

    look: Look
    label: str
    low: FloatArray
    high: FloatArray
    hatch: str = ""


def draw_bands(ax: Axes, columns: Columns, bands: list[Band]) -> list[Key]:
    """Draw bands with their labels inside. The axes' limits must be set. Returns keys for those without the room."""
    keys = []
    for band in bands:
        x, low = columns.outline(band.low)
        _, high = columns.outline(band.high)
        ax.fill_between(
            x, low, high, facecolor=band.look.light, edgecolor=GROUND, linewidth=0.0, hatch=band.hatch, zorder=2
        )
        if not _label_inside(ax, columns, band) and np.nanmax(np.abs(band.high - band.low)) > 0:
            keys.append(Key(band.look, band.label, band.hatch))
    return keys


def _label_inside(ax: Axes, columns: Columns, band: Band, num_places: int = 240) -> bool:
    """Write the label where the band is thickest over the label's width; False if it is too thin everywhere."""
    first, last = columns.axis.bounds
    x = first + (last - first) * (np.arange(num_places) + 0.5) / num_places
    width = int(np.ceil((len(band.label) * 5.4 + 8) / size_pt(ax)[0] * num_places))
    if width >= num_places:
        return False
    low, high = np.sort((columns.at(x, band.low), columns.at(x, band.high)), axis=0)
    windows = np.lib.stride_tricks.sliding_window_view
    floor, ceiling = windows(low, width).max(axis=1), windows(high, width).min(axis=1)
    room = np.nan_to_num(ceiling - floor, nan=-np.inf)
    best = int(np.argmax(room))
    bottom, top = sorted(ax.get_ylim())
    if room[best] < 15 / size_pt(ax)[1] * (top - bottom):
        return False
    y = (floor[best] + ceiling[best]) / 2
    box = {"facecolor": band.look.light, "edgecolor": "none", "pad": 1.0} if band.hatch else None
    ax.text(
        x[best] + (last - first) * width / num_places / 2,
        y,
        band.label,
        fontsize=TEXT_PT,
        color=ink_on(band.look.light),
        ha="center",
        va="center_baseline",
        zorder=4,
        bbox=box,
    )
    return True


# ---- around the bands ------------------------------------------------------------------------------------------------

HEIGHT_IN = 2.9
LIMIT_PT = 13.0
"""Height of the words on a limit."""


def frame(ax: Axes, axis: StepAxis, label: str, low: float, high: float, room_pt: float) -> None:
    """Axes from ``low`` to ``high``, with some room for words above that."""
    style(ax)
    along_steps(ax, axis)
    share = min(0.5, room_pt / size_pt(ax)[1])
    ax.set_ylim(low, (high - low * share) / (1 - share))
    ax.set_ylabel(label)
    count_whole(ax.yaxis)


def draw_limit(ax: Axes, value: float, label: str, raised_pt: float = 0.0) -> None:
    """A dashed line with its name at the right end, ``raised_pt`` above it."""
    ax.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=5)
    ax.annotate(
        label,
        (1, value),
        (-2, 2 + raised_pt),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=SMALL_PT,
        color=MUTED,
        ha="right",
        va="bottom",
        zorder=5,
    )


def averaging(columns: Columns) -> str:
    """What the note says of columns that stand for several steps."""
    if not columns.is_averaged:
        return ""
    hidden = f", {columns.num_hidden_gaps:,} short pauses left out" if columns.num_hidden_gaps else ""
    return f"; a column averages up to {np.diff(columns.starts, append=len(columns.axis)).max()} steps{hidden}"


def height_in(history: History, axis: StepAxis) -> float:
    """The height of a picture of bands, whatever the run."""
    return HEIGHT_IN
