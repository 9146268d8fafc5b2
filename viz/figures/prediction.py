"""A real run against its prediction, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanovllm.trace.metrics import request_metrics
from viz import palette
from viz.durations import unit_of
from viz.figures.canvas import MUTED, SMALL_PT, figure_of, heading, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LATENCIES = {
    "Time to first token": "time_to_first_token_s",
    "Time per output token": "time_per_output_token_s",
    "End-to-end latency": "end_to_end_s",
}
_TOLERANCE = 0.1
"""The band around equality."""


def prediction_data(
    real: Sequence[request_metrics.RequestMetrics], predicted: Sequence[request_metrics.RequestMetrics]
) -> dict[str, list[tuple[float, float]]]:
    """For each of ``LATENCIES``, the pairs of real and predicted seconds of the requests that both runs completed."""
    by_id = {row.request: row for row in predicted if row.outcome == "completed"}
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in LATENCIES}
    for row in real:
        if row.outcome != "completed" or row.request not in by_id:
            continue
        for name, field in LATENCIES.items():
            of_real, of_predicted = getattr(row, field), getattr(by_id[row.request], field)
            if of_real is not None and of_predicted is not None:
                pairs[name].append((of_real, of_predicted))
    return pairs


def prediction(
    real: Sequence[request_metrics.RequestMetrics], predicted: Sequence[request_metrics.RequestMetrics]
) -> Figure:
    """A panel a latency, a dot a request, on the diagonal where the prediction is right; the band is ±10%."""
    sheet = new_figure(height_in=3.6)
    panels = sheet.subplots(1, len(LATENCIES)).ravel().tolist()
    for ax, (name, pairs) in zip(panels, prediction_data(real, predicted).items(), strict=True):
        _draw_panel(ax, name, pairs)
    return figure_of(panels[0])


def _draw_panel(ax: Axes, name: str, pairs: Sequence[tuple[float, float]]) -> None:
    style(ax)
    if not pairs:
        heading(ax, name, note="no request was completed in both runs")
        return
    unit, unit_s = unit_of(max(map(max, pairs)))
    points = [(real / unit_s, predicted / unit_s) for real, predicted in pairs]
    low, high = min(map(min, points)), max(map(max, points))
    if low > 0 and high > 20 * low:
        ax.set_xscale("log")
        ax.set_yscale("log")
        edges = [low / 1.2, high * 1.2]
    else:
        edges = [low - 0.05 * (high - low or 1.0), high + 0.05 * (high - low or 1.0)]
    below, above = ([edge * (1 + sign * _TOLERANCE) for edge in edges] for sign in (-1, 1))
    ax.fill_between(edges, below, above, color=palette.REMAINING.light, linewidth=0, alpha=0.6)
    ax.plot(edges, edges, color=MUTED, linewidth=0.8)
    ax.plot(*zip(*points, strict=True), "o", color=palette.PREFILL.light, markersize=2.8, alpha=0.6, markeredgewidth=0)
    ax.set_xlim(*edges)
    ax.set_ylim(*edges)
    ax.set_xlabel(f"real ({unit})")
    ax.set_ylabel(f"predicted ({unit})")
    total_real, total_predicted = map(sum, zip(*points, strict=True))
    mean_error = f"mean {total_predicted / total_real - 1:+.1%}, " if total_real else ""
    ax.annotate(
        f"{mean_error}{len(points):,} requests",
        (0.03, 0.97),
        xycoords="axes fraction",
        fontsize=SMALL_PT,
        color=MUTED,
        va="top",
    )
    heading(ax, name)
