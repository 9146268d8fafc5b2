"""What a load costs on KV pools of different sizes: below some size it falls off a cliff."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanovllm.errors import TraceError, UserError
from nanovllm.trace.events import TraceStarted
from nanovllm.trace.metrics import Metrics, compute_metrics
from viz import palette
from viz.durations import unit_of
from viz.figures.canvas import INK, MARKERS, SMALL_PT, Key, count_whole, figure_of, heading, new_figure, style
from viz.figures.history import Source, events_of
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


@dataclass(frozen=True)
class CliffPoint:
    """What one run came to."""

    num_blocks: int
    num_preemptions: int
    time_to_first_token_p99_s: float | None
    """None if no request was completed."""
    output_tokens_per_s: float = 0.0
    hit_rate: float = 0.0
    """Share of the prompt tokens that the prefix cache had."""


def pool_cliff_data(runs: Iterable[Source] | Mapping[int, Metrics]) -> list[CliffPoint]:
    """A point a run, by size of the pool: from traces, which tell it in their headers, or from metrics by size.

    Raises ``UserError`` if there is no run, or two have pools of one size.
    """
    sized = list(runs.items()) if isinstance(runs, Mapping) else [_measured(source) for source in runs]
    sizes = [size for size, _ in sized]
    if not sizes:
        raise UserError("a cliff is drawn from several runs, there is none")
    if len(set(sizes)) < len(sizes):
        twice = next(size for size in sizes if sizes.count(size) > 1)
        raise UserError(f"two runs have a KV pool of {twice} blocks: each size may come once")
    return [_point(size, metrics) for size, metrics in sorted(sized, key=lambda pair: pair[0])]


def _measured(source: Source) -> tuple[int, Metrics]:
    name, events = events_of(source)
    header = events[0]
    if not isinstance(header, TraceStarted) or not isinstance(header.config.get("num_blocks"), int):
        raise TraceError(name, "the header does not tell num_blocks", 1)
    return header.config["num_blocks"], compute_metrics(events, name)


def _point(num_blocks: int, metrics: Metrics) -> CliffPoint:
    first = metrics.time_to_first_token_s
    return CliffPoint(
        num_blocks=num_blocks,
        num_preemptions=metrics.num_preemptions,
        time_to_first_token_p99_s=None if first is None else first.p99,
        output_tokens_per_s=metrics.output_tokens_per_s,
        hit_rate=metrics.hit_rate,
    )


def pool_cliff(runs: Iterable[Source] | Mapping[int, Metrics], *, figure: Figure | SubFigure | None = None) -> Figure:
    """Preemptions, and below them the 99th percentile of the time to first token, against the size of the KV pool."""
    points = pool_cliff_data(runs)
    sheet = new_figure(height_in=4.8) if figure is None else figure
    upper, lower = sheet.subplots(2, 1, sharex=True)
    sizes = [point.num_blocks for point in points]
    _draw_line(upper, sizes, [float(point.num_preemptions) for point in points], palette.PREEMPTED)
    count_whole(upper.yaxis)
    unit, unit_s = _unit(points)
    latencies = [(p.num_blocks, p.time_to_first_token_p99_s) for p in points if p.time_to_first_token_p99_s is not None]
    _draw_line(lower, [size for size, _ in latencies], [value / unit_s for _, value in latencies], palette.PREFILL)
    _shade_too_small(upper, lower, points)
    upper.set_ylabel("preemptions")
    lower.set_ylabel(f"p99, {unit}")
    lower.set_xlabel("KV blocks in the pool")
    count_whole(lower.xaxis)
    heading(upper, "Preemptions", note=f"{len(points)} runs of one load")
    heading(lower, "Time to first token, 99th percentile")
    return figure_of(upper)


def pool_cliffs(lines: Mapping[str, Sequence[CliffPoint]]) -> Figure:
    """Four figures against the size of the KV pool: preemptions, p99 of the time to first token, throughput and the hit
    rate of the prefix cache; a line for each load or configuration, by its name.

    Raises ``UserError`` if there are no lines, or more than colours to tell them apart.
    """
    points = [point for line in lines.values() for point in line]
    if not points or len(lines) > len(palette.SERIES):
        raise UserError(f"cliffs are drawn as 1 to {len(palette.SERIES)} lines, not {len(lines)}")
    sheet = new_figure(height_in=5.6)
    panels = sheet.subplots(2, 2, sharex=True).ravel().tolist()
    unit, unit_s = _unit(points)
    measures: dict[str, tuple[str, Callable[[CliffPoint], float | None]]] = {
        "Preemptions": ("preemptions", lambda point: point.num_preemptions),
        "Time to first token, 99th percentile": (
            f"p99, {unit}",
            lambda point: _scaled(point.time_to_first_token_p99_s, unit_s),
        ),
        "Throughput": ("output tokens/s", lambda point: point.output_tokens_per_s),
        "Prefix cache": ("% of the prompt tokens found", lambda point: 100 * point.hit_rate),
    }
    keys = (
        [Key(look, name, is_glyph=True) for name, look in zip(lines, palette.SERIES, strict=False)]
        if len(lines) > 1
        else []
    )
    for ax, (title, (label, measure)) in zip(panels, measures.items(), strict=True):
        highest = 0.0
        for line, look in zip(lines.values(), palette.SERIES, strict=False):
            measured = [(point.num_blocks, measure(point)) for point in sorted(line, key=lambda p: p.num_blocks)]
            told = [(size, value) for size, value in measured if value is not None]
            _draw_line(ax, [size for size, _ in told], [value for _, value in told], look)
            highest = max([highest, *(value for _, value in told)])
        _set_sizes(ax, points)
        count_whole(ax.yaxis)
        ax.set_ylim(0, highest * 1.08 or 1.0)
        ax.set_ylabel(label)
        heading(ax, title, keys if ax is panels[0] else ())
    for ax in panels[2:]:
        ax.set_xlabel("KV blocks in the pool")
    return figure_of(panels[0])


def _set_sizes(ax: Axes, points: Sequence[CliffPoint]) -> None:
    """Sizes that are far apart on a logarithmic axis."""
    sizes = sorted({point.num_blocks for point in points})
    if sizes[-1] > 10 * sizes[0]:
        ax.set_xscale("log")
        ax.set_xticks(sizes if len(sizes) < 9 else sizes[:: len(sizes) // 6], minor=False)
        ax.minorticks_off()
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    else:
        count_whole(ax.xaxis)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _unit(points: Sequence[CliffPoint]) -> tuple[str, float]:
    most = max((point.time_to_first_token_p99_s or 0.0 for point in points), default=0.0)
    return unit_of(most)


def _draw_line(ax: Axes, x: list[int], y: list[float], look: Look) -> None:
    style(ax)
    ax.plot(x, y, marker=MARKERS[look.name], color=look.light, linewidth=1.6, markersize=5.5, clip_on=False, zorder=3)
    ax.set_ylim(0, max([*y, 0.0]) * 1.08 or 1.0)


def _shade_too_small(upper: Axes, lower: Axes, points: list[CliffPoint]) -> None:
    """Shade the sizes up to the first from which on no run preempts."""
    too_small = max((point.num_blocks for point in points if point.num_preemptions), default=None)
    enough = min((point.num_blocks for point in points if point.num_blocks > (too_small or 0)), default=None)
    if too_small is None or enough is None:
        return
    least, most = upper.get_xlim()
    for ax in (upper, lower):
        ax.axvspan(least, enough, facecolor=palette.FREE.light, edgecolor="none", zorder=0)
    upper.set_xlim(least, most)
    is_left_half = enough < (least + most) / 2
    upper.annotate(
        f"no preemptions from {enough:,} blocks on",
        (enough, 1),
        (5 if is_left_half else -5, -4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=SMALL_PT,
        color=INK,
        ha="left" if is_left_half else "right",
        va="top",
    )
