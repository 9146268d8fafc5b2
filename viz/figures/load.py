"""The load of the engine over the steps: KV pool, queues, and tokens against the budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from viz import palette
from viz.figures.axis import StepAxis, StepRange, along_steps
from viz.figures.bands import Band, Columns, columns_of, draw_bands
from viz.figures.canvas import (
    GROUND,
    INK,
    MARKERS,
    MUTED,
    SMALL_PT,
    Key,
    count_whole,
    heading,
    style,
    width_pt,
)
from viz.figures.history import History, Source
from viz.figures.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_IN = 2.9
_UNUSED = replace(palette.FREE, name="unused", label="unused")


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
    _frame(ax, axis, "KV blocks", (0, history.num_blocks))
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
    heading(ax, history.title("Use of the KV pool"), keys, history.problem, note + _averaged(columns))


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
    is_limit_near = slots is not None and running.max() >= 0.5 * slots
    top = slots * 1.2 if slots is not None and is_limit_near else max(running.max(), 1) * 1.15
    _frame(ax, axis, "requests", (-max(waiting.max() * 1.15, top * 0.1), top))
    zero = np.zeros_like(running)
    keys = draw_bands(
        ax,
        columns,
        [Band(palette.DECODE, "running", zero, running), Band(palette.WAITING, "waiting", -waiting, zero)],
    )
    ax.axhline(0, color=INK, linewidth=0.8, zorder=5)
    if slots is not None and is_limit_near:
        _limit(ax, slots, f"max_num_seqs {slots:,}")
    most = history.steps.running[axis.slice].max(), history.steps.waiting[axis.slice].max()
    note = f"at most {most[0]:,} running, {most[1]:,} waiting"
    heading(ax, history.title("Length of the queues"), keys, history.problem, note + _averaged(columns))


@dataclass(frozen=True)
class BudgetUse:
    """Tokens computed and tokens that the budget would have allowed, over some steps."""

    prefill_tokens: int
    decode_tokens: int
    num_steps: int
    budget_tokens: int
    """Of one step; 0 if the trace does not tell it."""

    @property
    def share(self) -> float:
        """Of the budget of all steps, how much was used."""
        allowed = self.num_steps * self.budget_tokens
        return (self.prefill_tokens + self.decode_tokens) / allowed if allowed else 0.0


def budget_use(history: History, axis: StepAxis) -> BudgetUse:
    """How the drawn steps used their budgets."""
    prefill, decode = history.steps.prefill_tokens[axis.slice].sum(), history.steps.decode_tokens[axis.slice].sum()
    return BudgetUse(int(prefill), int(decode), len(axis), history.option("max_num_batched_tokens") or 0)


def step_tokens(
    source: Source | History, *, steps: StepRange | None = None, by_time: bool = False, ax: Axes | None = None
) -> Figure:
    """Tokens that each step computes, for prompts and for decoding, against the budget of a step."""
    return STEP_TOKENS.figure(source, steps, by_time, ax)


def _draw_step_tokens(ax: Axes, history: History, axis: StepAxis) -> None:
    columns = columns_of(axis)
    decode = columns.mean(history.steps.decode_tokens, by_width=False)
    used = decode + columns.mean(history.steps.prefill_tokens, by_width=False)
    use = budget_use(history, axis)
    budget, most = use.budget_tokens, max(float(used.max()), 1.0)
    is_budget_near = most >= 0.2 * budget > 0
    top = max(budget, most) if is_budget_near else most
    _frame(ax, axis, "tokens a step", (0, top * 1.08))
    bands = [
        Band(palette.DECODE, "decode", np.zeros_like(decode), decode),
        Band(palette.PREFILL, "prefill", decode, used),
    ]
    if is_budget_near:
        bands.append(Band(_UNUSED, "unused", used, np.full_like(used, max(budget, most))))
        _limit(ax, budget, f"budget {budget:,}")
    keys = draw_bands(ax, columns, bands)
    _number_steps(ax, columns, used)
    tokens = f"{use.prefill_tokens:,} prefill + {use.decode_tokens:,} decode tokens"
    note = f"{tokens}, {use.share:.0%} of the budget" if budget else tokens
    if budget and not is_budget_near:
        note += f" of {budget:,} a step"
    heading(ax, history.title("Tokens computed by each step"), keys, history.problem, note + _averaged(columns))


def _number_steps(ax: Axes, columns: Columns, used: np.ndarray) -> None:
    """Each step's number of tokens, if all have the room."""
    first, last = columns.axis.bounds
    widths_pt = (columns.right - columns.left) / (last - first) * width_pt(ax)
    if columns.is_averaged or widths_pt.min() < 5 * len(f"{used.max():.0f}") + 2:
        return
    for left, right, tokens in zip(columns.left, columns.right, used, strict=True):
        ax.annotate(
            f"{tokens:.0f}",
            ((left + right) / 2, tokens),
            (0, 2),
            textcoords="offset points",
            fontsize=7,
            color=INK,
            ha="center",
            zorder=5,
        )


def _frame(ax: Axes, axis: StepAxis, label: str, limits: tuple[float, float]) -> None:
    style(ax)
    along_steps(ax, axis)
    ax.set_ylim(*limits)
    ax.set_ylabel(label)
    count_whole(ax.yaxis)


def _limit(ax: Axes, value: float, label: str) -> None:
    ax.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=5)
    ax.annotate(
        label,
        (1, value),
        (-2, 2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=SMALL_PT,
        color=MUTED,
        ha="right",
        va="bottom",
        zorder=5,
    )


def _averaged(columns: Columns) -> str:
    return f"; a column averages {-(-len(columns.axis) // len(columns.starts))} steps" if columns.is_averaged else ""


def _height_in(history: History, axis: StepAxis) -> float:
    return HEIGHT_IN


KV_USE = Panel(_draw_kv_use, _height_in)
QUEUE_LENGTHS = Panel(_draw_queue_lengths, _height_in)
STEP_TOKENS = Panel(_draw_step_tokens, _height_in)
