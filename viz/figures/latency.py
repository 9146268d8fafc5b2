"""How latencies are distributed over the requests of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nanovllm.trace.metrics import summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.latency import Latency, summarize
from viz import palette
from viz.durations import unit_of
from viz.figures.canvas import INK, MUTED, SMALL_PT, TEXT_PT, figure_of, heading, mark_problem, new_figure, style
from viz.figures.history import FloatArray, Source, events_of, problem_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

MAX_POINTS = 2000
"""A curve with more distinct values shows every so many of them."""
LONG_TAIL = 20.0
"""From this ratio of maximum to median on, the axis is logarithmic."""


@dataclass(frozen=True)
class LatencyCurve:
    """An empirical distribution: a share ``shares[i]`` of all durations lies at or below ``values_s[i]``; linear in
    between, as percentiles are interpolated. Both ascend, from share 0 to 1."""

    name: str
    values_s: FloatArray
    shares: FloatArray
    summary: Latency


NAMES = ("Time to first token", "Time per output token", "Inter-token latency", "End-to-end latency")


def latency_curves(source: Source) -> list[LatencyCurve | None]:
    """The distributions of ``NAMES``, of completed requests, as ``nanovllm.trace.metrics`` defines them; None for one
    of which there is nothing."""
    _, events = events_of(source)
    collector = MetricsCollector()
    for event in events:
        collector.apply(event)
    rows = [row for row in summarize_run(collector).requests if row.outcome == "completed"]
    counts = (
        _counted(row.time_to_first_token_s for row in rows),
        _counted(row.time_per_output_token_s for row in rows),
        collector.gaps,
        _counted(row.end_to_end_s for row in rows),
    )
    return [_curve(name, count) for name, count in zip(NAMES, counts, strict=True)]


def _counted(durations_s: Iterable[float | None]) -> Counter[float]:
    return Counter(duration for duration in durations_s if duration is not None)


def _curve(name: str, counts: Counter[float]) -> LatencyCurve | None:
    summary = summarize(counts)
    if summary is None:
        return None
    # Percentile p of n sorted values stands at index p (n - 1): a value that occurs several times fills several.
    values_s = np.array(sorted(counts))
    ends = np.cumsum([counts[value] for value in values_s.tolist()]) - 1
    starts = np.append(0, ends[:-1] + 1)
    shares = np.stack((starts, ends), axis=1).ravel() / ends[-1] if ends[-1] else np.array([0.0, 1.0])
    return LatencyCurve(name, np.repeat(values_s, 2), shares, summary)


def latency(source: Source, *, figure: Figure | SubFigure | None = None) -> Figure:
    """Four cumulative distributions with their percentiles 50, 90 and 99; long tails on a logarithmic axis."""
    sheet = new_figure(height_in=5.2) if figure is None else figure
    panels = sheet.subplots(2, 2, sharey=True).ravel().tolist()
    draw_latencies(panels, source)
    problem = problem_of(source)
    if problem is not None:
        mark_problem(sheet, problem)
    return figure_of(panels[0])


def draw_latencies(panels: Sequence[Axes], source: Source) -> None:
    """Draw into four axes, two a row."""
    for index, (ax, curve, name) in enumerate(zip(panels, latency_curves(source), NAMES, strict=True)):
        _draw_panel(ax, curve, name)
        if index % 2 == 0:
            ax.set_ylabel("share of all")


def _draw_panel(ax: Axes, curve: LatencyCurve | None, name: str) -> None:
    style(ax)
    ax.set_ylim(0, 1.1)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "50%", "", "100%"])
    if curve is None:
        heading(ax, name)
        ax.set_xticks([])
        ax.text(
            0.5,
            0.5,
            "none: no request was completed",
            color=MUTED,
            fontsize=TEXT_PT,
            ha="center",
            va="center",
            transform=ax.transAxes,
        )
        return
    unit, unit_s = unit_of(curve.summary.max)
    _set_range(ax, curve, unit_s)
    kept = np.unique(np.linspace(0, len(curve.values_s) - 1, MAX_POINTS).round().astype(np.int64))
    x, y = curve.values_s[kept] / unit_s, curve.shares[kept]
    ax.plot(x, y, color=palette.PREFILL.light, linewidth=1.6, clip_on=False)
    for share in (50, 90, 99):
        _mark(ax, share, getattr(curve.summary, f"p{share}") / unit_s, unit)
    ax.set_xlabel(f"{unit}   ({curve.summary.count:,} values, mean {curve.summary.mean / unit_s:.3g} {unit})")
    heading(ax, name)


def _set_range(ax: Axes, curve: LatencyCurve, unit_s: float) -> None:
    least, most = float(curve.values_s[0]) / unit_s, curve.summary.max / unit_s
    if least > 0 and curve.summary.max > LONG_TAIL * curve.summary.p50:
        ax.set_xscale("log")
        ax.set_xlim(least / 1.2, most * 1.2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        ax.set_xlim(0, most * 1.04 or 1.0)


def _mark(ax: Axes, share: int, value: float, unit: str) -> None:
    """A percentile: on the side of the curve where there is room for its number."""
    ax.plot(value, share / 100, "o", color=palette.PREFILL.light, markersize=4.5, zorder=4)
    place = ax.transAxes.inverted().transform(ax.transData.transform((value, share / 100)))[0]
    is_right = place < 0.55
    ax.annotate(
        f"p{share} {value:.3g} {unit}",
        (value, share / 100),
        (7 if is_right else -7, -4 if is_right else 1),
        textcoords="offset points",
        fontsize=SMALL_PT,
        color=INK,
        ha="left" if is_right else "right",
        va="center" if is_right else "bottom",
        zorder=5,
    )
