"""Two runs side by side, with the place where their decisions part."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nanovllm.trace.diff import Difference, diff
from viz.figures.axis import StepAxis, StepRange, common_bounds, step_axis
from viz.figures.canvas import GROUND, INK, SMALL_PT, TEXT_PT, figure_of, new_figure, size_pt
from viz.figures.historian import history_of
from viz.figures.history import History, Source, events_of
from viz.figures.load import KV_USE
from viz.figures.timeline import TIMELINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

WIDTH_IN, WORDS_A_LINE = 13.0, 150
_PANELS = (TIMELINE, KV_USE)


def first_difference(a: Source, b: Source) -> Difference | None:
    """Where the decisions of two traces part, None if they never do: see ``nanovllm.trace.diff``."""
    return diff(events_of(a)[1], events_of(b)[1])


def compare(
    a: Source,
    b: Source,
    *,
    labels: tuple[str, str] = ("A", "B"),
    steps: StepRange | None = None,
    by_time: bool = False,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """What the requests do and how the KV pool is used in two runs, on equal axes. Above them stands in words what the
    first difference of their decisions is; a line marks the step.

    ``labels`` name the runs in the titles. Raises ``UserError`` if one of them has none of the ``steps``.
    """
    histories = [replace(history_of(run), label=label) for run, label in zip((a, b), labels, strict=True)]
    axes = common_bounds([step_axis(history, steps, by_time) for history in histories])
    heights = [max(map(panel.height_in, histories, axes)) for panel in _PANELS]
    sheet = new_figure(WIDTH_IN, sum(heights) + 0.7) if figure is None else figure
    grid = sheet.subplots(len(_PANELS), 2, height_ratios=heights)
    difference = first_difference(a, b)
    for row, panel in zip(grid, _PANELS, strict=True):
        for ax, history, axis in zip(row, histories, axes, strict=True):
            panel.draw(ax, history, axis)
            if difference is not None and difference.step is not None:
                _mark_step(ax, history, axis, difference.step, "first difference" if panel is TIMELINE else "")
        _equalize(row, room_pt=15.0 if panel is TIMELINE else 0.0)
    _tell(sheet, difference)
    return figure_of(grid[0, 0])


def _equalize(row: Sequence[Axes], room_pt: float) -> None:
    """Give the axes of a row the same vertical limits, with some room for words at the bottom."""
    limits = [ax.get_ylim() for ax in row]
    is_downward = limits[0][0] > limits[0][1]
    low, high = min(map(min, limits)), max(map(max, limits))
    room = (high - low) * room_pt / size_pt(row[0])[1]
    for ax in row:
        ax.set_ylim((high + room, low) if is_downward else (low - room, high))


def _mark_step(ax: Axes, history: History, axis: StepAxis, step: int, text: str) -> None:
    """A line where the step begins; at the end of a run that does not get there."""
    offset = int(np.searchsorted(history.steps.number[axis.slice], step))
    if offset == 0 and step < history.steps.number[axis.slice][0]:
        return
    place = axis.left[offset] if offset < len(axis) else axis.right[-1]
    ax.axvline(place, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3.5)  # below the words
    is_left_half = place < sum(axis.bounds) / 2
    ax.annotate(
        text,
        (place, 0),
        (4 if is_left_half else -4, 4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=SMALL_PT,
        fontweight="bold",
        color=INK,
        ha="left" if is_left_half else "right",
        bbox={"facecolor": GROUND, "edgecolor": "none", "alpha": 0.85, "pad": 1.0},
        zorder=7,
    )


def _tell(sheet: Figure | SubFigure, difference: Difference | None) -> None:
    text = "the decisions are the same" if difference is None else str(difference)
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WORDS_A_LINE)]
    sheet.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=TEXT_PT, color=INK)
