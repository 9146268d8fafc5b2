"""What routers make of one load on growing numbers of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanovllm.errors import UserError
from viz import palette
from viz.durations import duration
from viz.figures.canvas import INK, MARKERS, TEXT_PT, count_whole, figure_of, heading, new_figure, style
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_TICKS = 10
"""With so many numbers of replicas, each stands on the axis."""


@dataclass(frozen=True, kw_only=True)
class RoutingPoint:
    """What one run came to. Latencies are None if no request was completed."""

    router: str
    num_replicas: int
    hit_rate: float
    """Share of the prompt tokens that the prefix caches had."""
    time_to_first_token_p50_s: float | None
    time_to_first_token_p99_s: float | None
    load_imbalance: float
    """Load of the fullest replica over the average; 1: all have the same."""


def routing(points: Sequence[RoutingPoint]) -> Figure:
    """Three figures over the number of replicas, a line a router: how much the prefix caches had, how long requests
    waited for their first token (the 99th percentile, and dotted the median), how unevenly replicas were loaded.

    Raises ``UserError`` if there are no points, two of one router and number, or more routers than colours.
    """
    lines: dict[str, list[RoutingPoint]] = {}
    for point in sorted(points, key=lambda point: point.num_replicas):
        lines.setdefault(point.router, []).append(point)
    names = list(dict.fromkeys(point.router for point in points))
    if not 1 <= len(names) <= len(palette.SERIES):
        raise UserError(f"routers are drawn as 1 to {len(palette.SERIES)} lines, not {len(names)}")
    if len({(point.router, point.num_replicas) for point in points}) < len(points):
        raise UserError("two runs have the same router and number of replicas: each may come once")
    looks = dict(zip(names, palette.SERIES, strict=False))
    sheet = new_figure(height_in=3.9)
    panels = sheet.subplots(1, 3).ravel().tolist()
    _draw_key(sheet, looks)
    _draw_hits(panels[0], lines, looks)
    _draw_waits(panels[1], lines, looks)
    _draw_imbalance(panels[2], lines, looks)
    counts = sorted({point.num_replicas for point in points})
    for ax in panels:
        if len(counts) <= MAX_TICKS:
            ax.set_xticks(counts)
        else:
            count_whole(ax.xaxis)
        ax.set_xlabel("replicas")
    return figure_of(panels[0])


def _draw_key(sheet: Figure, looks: dict[str, Look]) -> None:
    from matplotlib.lines import Line2D

    sheet.legend(
        handles=[
            Line2D([], [], marker=MARKERS[look.name], color=look.light, linewidth=1.6, markersize=5, label=name)
            for name, look in looks.items()
        ],
        loc="outside upper left",
        ncols=len(looks),
        frameon=False,
        fontsize=TEXT_PT,
        labelcolor=INK,
    )


def _draw_hits(ax: Axes, lines: dict[str, list[RoutingPoint]], looks: dict[str, Look]) -> None:
    style(ax)
    for name, look in looks.items():
        _draw_line(ax, look, [(point.num_replicas, 100 * point.hit_rate) for point in lines[name]])
    ax.set_ylim(0, None)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    heading(ax, "Found in prefix caches", note="share of the prompt tokens, all replicas together")


def _draw_waits(ax: Axes, lines: dict[str, list[RoutingPoint]], looks: dict[str, Look]) -> None:
    style(ax)
    ax.set_yscale("log")
    for name, look in looks.items():
        for measure, line_style in (("time_to_first_token_p99_s", "-"), ("time_to_first_token_p50_s", ":")):
            told = [(point.num_replicas, getattr(point, measure)) for point in lines[name]]
            _draw_line(ax, look, [(count, value) for count, value in told if value is not None], line_style)
    ax.yaxis.set_major_formatter(lambda value, _: duration(value))
    heading(ax, "Time to first token", note="99th percentile; dotted: median")


def _draw_imbalance(ax: Axes, lines: dict[str, list[RoutingPoint]], looks: dict[str, Look]) -> None:
    style(ax)
    for name, look in looks.items():
        _draw_line(ax, look, [(point.num_replicas, point.load_imbalance) for point in lines[name]])
    ax.set_ylim(1, None)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
    heading(ax, "Load of the fullest replica", note="over the average load, when a request arrives")


def _draw_line(ax: Axes, look: Look, points: Sequence[tuple[float, float]], line_style: str = "-") -> None:
    x, y = [count for count, _ in points], [value for _, value in points]
    marker = MARKERS[look.name]
    ax.plot(x, y, line_style, marker=marker, color=look.light, linewidth=1.6, markersize=5, clip_on=False, zorder=3)
