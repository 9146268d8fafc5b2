"""The load of the engine over the steps: how full the KV pool is, and how long the queues are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viz import palette
from viz.figures.axis import StepAxis, StepRange
from viz.figures.bands import LIMIT_PT, Band, Columns, averaging, columns_of, draw_bands, draw_limit, frame, height_in
from viz.figures.canvas import GROUND, INK, MARKERS, Key, heading
from viz.figures.history import History, Source
from viz.figures.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def kv_use(
    source: Source | History, *, steps: StepRange | None = None, by_time: bool = False, ax: Axes | None = None
) -> Figure:
    """The KV pool in three bands: in use, cached (free, with content kept for reuse), free; preemptions are marked."""
    return KV_USE.figure(source, steps, by_time, ax)


def _draw_kv_use(ax: Axes, history: History, axis: StepAxis) -> None:
    columns = columns_of(axis)
    in_use = columns.mean(history.steps.in_use_blocks)
    cached = in_use + columns.mean(history.steps.cached_blocks)
    everything = np.full_like(in_use, history.num_blocks)
    frame(ax, axis, "KV blocks", 0, history.num_blocks, room_pt=0)
    keys = draw_bands(
        ax,
        columns,
        [
            Band(palette.IN_USE, "in use", np.zeros_like(in_use), in_use),
            Band(palette.CACHED, "cached", in_use, cached, "////"),
            Band(palette.FREE, "free", cached, everything),
        ],
    )
    keys += _mark_preemptions(ax, history, columns)
    share = history.steps.in_use_blocks[axis.slice].max() / history.num_blocks
    note = f"{history.num_blocks:,} blocks of {history.block_size} tokens, at most {share:.0%} in use"
    heading(ax, history.title("Use of the KV pool"), keys, history.problem, note + averaging(columns))


def _mark_preemptions(ax: Axes, history: History, columns: Columns) -> list[Key]:
    """A mark at the top of the pool for each column with a preemption; many become a row of ticks."""
    is_preempting = columns.mean(history.steps.preemptions) > 0
    if not is_preempting.any():
        return []
    x = (columns.left + columns.right)[is_preempting] / 2
    is_rug = len(x) > 60
    ax.plot(
        x,
        np.full_like(x, history.num_blocks),
        "|" if is_rug else MARKERS["preempted"],
        color=palette.PREEMPTED.light,
        markersize=6,
        markeredgecolor=palette.PREEMPTED.light if is_rug else GROUND,
        markeredgewidth=0.6,
        clip_on=False,
        zorder=6,
    )
    count = int(history.steps.preemptions[columns.axis.slice].sum())
    return [Key(palette.PREEMPTED, f"{count:,} preemption{'s' if count > 1 else ''}", is_glyph=True)]


def queue_lengths(
    source: Source | History, *, steps: StepRange | None = None, by_time: bool = False, ax: Axes | None = None
) -> Figure:
    """How many requests run (upward) and wait (downward) while each step computes."""
    return QUEUE_LENGTHS.figure(source, steps, by_time, ax)


def _draw_queue_lengths(ax: Axes, history: History, axis: StepAxis) -> None:
    columns = columns_of(axis)
    running, waiting = columns.mean(history.steps.running), columns.mean(history.steps.waiting)
    slots = history.option("max_num_seqs")
    limit = slots if slots is not None and running.max() >= 0.5 * slots else None
    top = limit or max(running.max(), 1.0)
    frame(ax, axis, "requests", -max(waiting.max() * 1.1, top * 0.1), top, room_pt=LIMIT_PT)
    zero = np.zeros_like(running)
    keys = draw_bands(
        ax,
        columns,
        [Band(palette.DECODE, "running", zero, running), Band(palette.WAITING, "waiting", -waiting, zero)],
    )
    ax.axhline(0, color=INK, linewidth=0.8, zorder=5)
    if limit is not None:
        draw_limit(ax, limit, f"max_num_seqs {limit:,}")
    most = history.steps.running[axis.slice].max(), history.steps.waiting[axis.slice].max()
    note = f"at most {most[0]:,} running, {most[1]:,} waiting"
    heading(ax, history.title("Length of the queues"), keys, history.problem, note + averaging(columns))


KV_USE = Panel(_draw_kv_use, height_in)
QUEUE_LENGTHS = Panel(_draw_queue_lengths, height_in)
