"""A timeline with too many requests or steps for bars: one pixel row a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viz.figures.axis import StepAxis
from viz.figures.canvas import GROUND, mixed
from viz.figures.history import Activity, History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 1600
MAX_ROWS = 4096
"""Some times as many as there are pixels for them: an image of more is large, and shows no more."""

ActivityImage = NDArray[np.uint8]
"""Codes (``Activity`` in order from 1, 0 for nothing), shape [rows, columns]."""


def draw_image(ax: Axes, history: History, axis: StepAxis, rows: list[int]) -> None:
    """Draw these requests, a row each; of more than ``MAX_ROWS``, so many at equal distances."""
    from matplotlib.colors import ListedColormap

    colours = [GROUND, *(image_colour(activity) for activity in Activity)]
    ax.imshow(
        activity_image(history, axis, _some(rows), MAX_COLUMNS),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        extent=(*axis.bounds, len(rows) - 0.5, -0.5),
        aspect="auto",
        interpolation="nearest",
    )


def _some(rows: list[int]) -> list[int]:
    if len(rows) <= MAX_ROWS:
        return rows
    return [rows[(2 * index + 1) * len(rows) // (2 * MAX_ROWS)] for index in range(MAX_ROWS)]


def image_colour(activity: Activity) -> str:
    """Paler for those who do nothing: as bars they are thin, here they are as high as the others."""
    return mixed(activity.look.light, GROUND, {Activity.WAITING: 0.4, Activity.IDLE: 0.6}.get(activity, 0.0))


_CODES = {activity: code for code, activity in enumerate(Activity, start=1)}


def activity_image(history: History, axis: StepAxis, rows: list[int], num_columns: int) -> ActivityImage:
    """A column shows what its middle step shows; and a prefill or a preemption if any of its steps has one."""
    columns = axis.samples(num_columns)
    known = columns >= 0
    image = np.zeros((len(rows), len(columns)), dtype=np.uint8)
    rare: list[tuple[int, int, int]] = []
    for y, row in enumerate(rows):
        life = history.requests[row]
        starts = np.array([position for position, _ in life.changes])
        codes = np.array([0] + [_CODES[activity] for _, activity in life.changes], dtype=np.uint8)
        end = len(history.steps) if life.end is None else life.end
        doing = codes[np.searchsorted(starts, columns[known], side="right")]
        doing[columns[known] >= end] = 0
        image[y, known] = doing
        rare += [(y, chunk.position, _CODES[Activity.PREFILL]) for chunk in life.chunks]
        rare += [(y, position, _CODES[Activity.PREEMPTED]) for position in life.preemptions]
    _paint_rare(image, axis, rare)
    return image


def _paint_rare(image: ActivityImage, axis: StepAxis, rare: list[tuple[int, int, int]]) -> None:
    y, position, code = np.array(rare, dtype=np.int64).reshape(-1, 3).T
    drawn = (position >= axis.positions.start) & (position < axis.positions.stop)
    y, offset, code = y[drawn], position[drawn] - axis.positions.start, code[drawn]
    first, last = axis.bounds
    middle = (axis.left[offset] + axis.right[offset]) / 2
    column = ((middle - first) / (last - first) * image.shape[1]).astype(np.int64)
    image[y, np.minimum(column, image.shape[1] - 1)] = code
