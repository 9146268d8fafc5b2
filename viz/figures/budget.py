"""What each step computes, against what its token budget allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from viz import palette
from viz.figures.axis import StepAxis, StepRange
from viz.figures.bands import LIMIT_PT, Band, Columns, averaging, columns_of, draw_bands, draw_limit, frame, height_in
from viz.figures.canvas import INK, heading, size_pt
from viz.figures.history import FloatArray, History, Source
from viz.figures.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNUSED = replace(palette.FREE, name="unused", label="unused")


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
    is_numbered = _has_room_for_numbers(ax, columns, most)
    numbers_pt = 10.0 if is_numbered else 0.0
    top = max(budget, most) if is_budget_near else most
    frame(ax, axis, "tokens a step", 0, top, room_pt=numbers_pt + (LIMIT_PT if is_budget_near else 2.0))
    bands = [
        Band(palette.DECODE, "decode", np.zeros_like(decode), decode),
        Band(palette.PREFILL, "prefill", decode, used),
    ]
    if is_budget_near:
        bands.append(Band(_UNUSED, "unused", used, np.full_like(used, max(budget, most))))
        draw_limit(ax, budget, f"budget {budget:,}", raised_pt=numbers_pt)
    keys = draw_bands(ax, columns, bands)
    if is_numbered:
        _number_steps(ax, columns, used)
    tokens = f"{use.prefill_tokens:,} prefill + {use.decode_tokens:,} decode tokens"
    note = f"{tokens}, {use.share:.0%} of the budget" if budget else tokens
    if budget and not is_budget_near:
        note += f" of {budget:,} a step"
    heading(ax, history.title("Tokens computed by each step"), keys, history.problem, note + averaging(columns))


def _has_room_for_numbers(ax: Axes, columns: Columns, most: float) -> bool:
    first, last = columns.axis.bounds
    widths_pt = (columns.right - columns.left) / (last - first) * size_pt(ax)[0]
    return not columns.is_averaged and widths_pt.min() >= 5 * len(f"{most:.0f}") + 2


def _number_steps(ax: Axes, columns: Columns, used: FloatArray) -> None:
    """Write each step's number of tokens above its bar."""
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


STEP_TOKENS = Panel(_draw_step_tokens, height_in)
