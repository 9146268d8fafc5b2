"""What many configurations come to: throughput against latency, and those that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nanovllm.errors import UserError
from viz import palette
from viz.durations import duration, unit_of
from viz.figures.canvas import (
    GROUND,
    INK,
    MARKERS,
    MUTED,
    SMALL_PT,
    TEXT_PT,
    Key,
    figure_of,
    heading,
    new_figure,
    style,
)
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

MAX_NUMBERED = 14
"""Of a longer frontier, so many points, evenly along it, are named."""
_SPREAD = 20.0
"""From this ratio of most to least on, an axis is logarithmic."""

_APART = 0.025
"""From this part of an axis on, two points are told apart."""


@dataclass(frozen=True)
class ParetoPoint:
    """One configuration. ``group``: points of one group have one colour; at most as many groups as there are colours
    are told apart."""

    label: str
    throughput: float
    latency_s: float
    group: str = ""


def pareto_frontier(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points than which no other one has both as much throughput and as little latency, and more or less of one of
    them; by throughput. Of several that come to the same, the first."""
    frontier: list[ParetoPoint] = []
    for point in sorted(points, key=lambda point: (-point.throughput, point.latency_s)):
        if not frontier or point.latency_s < frontier[-1].latency_s:
            frontier.append(point)
    return frontier[::-1]


def pareto(
    points: Sequence[ParetoPoint],
    *,
    throughput: str = "output tokens/s",
    latency: str = "p99 time to first token",
    label_names: str = "",
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Every point, the frontier as a line, and beside it a list of who is on it.

    ``throughput`` and ``latency``: what the axes are. ``label_names``: what stands in the labels. Raises ``UserError``
    if there is no point.
    """
    if not points:
        raise UserError("a Pareto frontier is drawn from several runs, there is none")
    frontier = pareto_frontier(points)
    sheet = new_figure(height_in=4.8) if figure is None else figure
    ax, beside = sheet.subplots(1, 2, width_ratios=[3, 2])
    unit, unit_s = unit_of(max(point.latency_s for point in points))
    looks = _looks(points)
    style(ax)
    _scale(ax, points, unit_s)
    _draw_points(ax, points, looks, unit_s)
    x, y = [point.throughput for point in frontier], [point.latency_s / unit_s for point in frontier]
    ax.step(x, y, where="pre", color=MUTED, linewidth=1.0, zorder=2)
    numbered = _numbered(ax, frontier, unit_s)
    for number, point in numbered.items():
        _draw_number(ax, number, point, looks[point.group], unit_s)
    ax.set_xlabel(f"{throughput}   (more is better)")
    ax.set_ylabel(f"{latency}, {unit}   (less is better)")
    heading(
        ax, "Throughput against latency", _keys(looks), note=f"{len(points):,} runs, {len(frontier)} on the frontier"
    )
    _list_frontier(beside, numbered, len(frontier), label_names)
    return figure_of(ax)


def _looks(points: Sequence[ParetoPoint]) -> dict[str, Look]:
    groups = list(dict.fromkeys(point.group for point in points))
    if not 1 < len(groups) <= len(palette.SERIES):
        return dict.fromkeys(groups, palette.SERIES[0])
    return dict(zip(groups, palette.SERIES, strict=False))


def _keys(looks: dict[str, Look]) -> list[Key]:
    return [Key(look, group, is_glyph=True) for group, look in looks.items()] if len(set(looks.values())) > 1 else []


def _scale(ax: Axes, points: Sequence[ParetoPoint], unit_s: float) -> None:
    """Logarithmic axes where the values are far apart; else from 0 on."""
    ranges = {
        "x": [point.throughput for point in points],
        "y": [point.latency_s / unit_s for point in points],
    }
    for name, values in ranges.items():
        set_scale, set_limits = (ax.set_xscale, ax.set_xlim) if name == "x" else (ax.set_yscale, ax.set_ylim)
        low, high = min(values), max(values)
        if low > 0 and high > _SPREAD * low:
            set_scale("log")
            set_limits(low / 1.4, high * 1.4)
        else:
            set_limits(0, high * 1.08 or 1.0)
        axis = ax.xaxis if name == "x" else ax.yaxis
        axis.set_major_formatter(lambda value, _: f"{value:,.4g}")


def _draw_points(ax: Axes, points: Sequence[ParetoPoint], looks: dict[str, Look], unit_s: float) -> None:
    for group, look in looks.items():
        own = [point for point in points if point.group == group]
        ax.plot(
            [point.throughput for point in own],
            [point.latency_s / unit_s for point in own],
            MARKERS[look.name],
            color=look.light,
            markersize=4.5,
            markeredgewidth=0,
            alpha=0.45,
            zorder=3,
        )


def _numbered(ax: Axes, frontier: Sequence[ParetoPoint], unit_s: float) -> dict[int, ParetoPoint]:
    """Those of the frontier that are named, by their number in the list: where several lie on top of each other, the
    first, and at the end of the frontier the last."""
    to_axes = ax.transData + ax.transAxes.inverted()
    apart: list[ParetoPoint] = []
    last = np.array([-1.0, -1.0])
    for point in frontier:
        place = np.array(to_axes.transform((point.throughput, point.latency_s / unit_s)))
        if np.abs(place - last).max() > _APART:
            apart.append(point)
            last = place
    if len(apart) > 1:
        apart[-1] = frontier[-1]
    places = np.unique(np.linspace(0, len(apart) - 1, MAX_NUMBERED).round().astype(int)).tolist()
    return {number: apart[place] for number, place in enumerate(places, start=1)}


def _draw_number(ax: Axes, number: int, point: ParetoPoint, look: Look, unit_s: float) -> None:
    place = (point.throughput, point.latency_s / unit_s)
    ax.plot(*place, "o", color=look.light, markersize=12, markeredgecolor=GROUND, zorder=4 + number)
    ax.annotate(
        str(number),
        place,
        color=GROUND,
        fontsize=SMALL_PT,
        fontweight="bold",
        ha="center",
        va="center_baseline",
        zorder=4 + number,
        annotation_clip=False,
    )


def _list_frontier(ax: Axes, numbered: dict[int, ParetoPoint], num_on_frontier: int, label_names: str) -> None:
    ax.set_axis_off()
    counted = f": {len(numbered)} of {num_on_frontier}" if len(numbered) < num_on_frontier else ""
    heading(ax, f"The frontier{counted}", note=label_names)
    for number, point in numbered.items():
        y = 1 - number / MAX_NUMBERED
        figures = f"{point.throughput:,.4g} per s, {duration(point.latency_s)}"
        ax.annotate(str(number), (0.0, y), xycoords="axes fraction", fontsize=TEXT_PT, fontweight="bold", color=INK)
        ax.annotate(point.label, (0.06, y), xycoords="axes fraction", fontsize=TEXT_PT, color=INK)
        ax.annotate(
            figures,
            (0.06, y),
            (0, -9),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=SMALL_PT,
            color=MUTED,
        )
