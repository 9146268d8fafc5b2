"""Draws a prompt's way through its chunks: what the cache gave, what each step adds, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanovllm.trace.events import RequestId
from viz import palette
from viz.figures.canvas import GROUND, INK, MUTED, SMALL_PT, TEXT_PT, TITLE_PT, Key, heading, shortened, width_pt
from viz.figures.history import Source, problem_of
from viz.figures.owners import ink_on
from viz.figures.panel import Sheet
from viz.figures.progress import ProgressStep, PromptProgress, prompt_progress_data
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_STEPS, MAX_NAMED_CHUNKS = 12, 6
"""Of more steps the middle ones are left out; more chunks are counted in the title, not listed."""


def prompt_progress(
    source: Source, request: RequestId | None = None, *, admission: int = 0, ax: Axes | None = None
) -> Figure:
    """A bar of the prompt's tokens for each step that computes a chunk of it, under the blocks that hold them."""
    data = prompt_progress_data(source, request, admission)
    return PROMPT_PROGRESS.figure(data, problem_of(source), ax)


def _draw(ax: Axes, data: PromptProgress, problem: str | None) -> None:
    shown = _shown(data.steps)
    for row, step in enumerate(shown, start=1):
        if step is not None:
            _draw_step(ax, data, step, row)
    _draw_blocks(ax, data, len(shown))
    left_out = len(data.steps) - len(shown) + 1
    names = ["KV block", *(f"step {step.step}" if step else f"{left_out} more" for step in shown)]
    ax.set_yticks(range(len(names)), names, fontsize=TEXT_PT, color=INK)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, data.num_tokens)
    name = shortened(str(data.request), 40)
    ax.set_xlabel(f"token of request {name}")
    if len(data.block_table) <= 16:
        ax.set_xticks(_numbered_tokens(data, width_pt(ax)))
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=TEXT_PT, color=MUTED)
    for spine in ax.spines.values():
        spine.set_visible(False)
    heading(ax, f"Request {name}: {data.num_tokens:,} tokens = {_sum(data)}", _keys(data), problem)


def _numbered_tokens(data: PromptProgress, axis_pt: float) -> list[int]:
    """The end of the prompt, and where blocks begin, as far as their numbers do not run into that of the end."""
    room_tokens = (len(str(data.num_tokens)) * 7 + 6) / axis_pt * data.num_tokens
    return [*range(0, max(1, data.num_tokens - int(room_tokens)), data.block_size), data.num_tokens]


def _height_in(data: PromptProgress) -> float:
    return 1.5 + 0.5 * (len(_shown(data.steps)) + 1)


def _shown(steps: Sequence[ProgressStep]) -> list[ProgressStep | None]:
    """The steps that get a row, and None for those in the middle that share one."""
    if len(steps) <= MAX_STEPS:
        return list(steps)
    return [*steps[: MAX_STEPS // 2], None, *steps[len(steps) - MAX_STEPS // 2 + 1 :]]


def _sum(data: PromptProgress) -> str:
    chunks = [step.num_scheduled_tokens for step in data.steps]
    parts = [f"{chunk:,}" for chunk in chunks]
    if len(chunks) > MAX_NAMED_CHUNKS:
        parts = [f"{sum(chunks):,} in {len(chunks)} chunks"]
    if data.num_reused_tokens:
        parts.insert(0, f"{data.num_reused_tokens:,} reused")
    if data.steps[-1].num_remaining_tokens:
        parts.append(f"{data.steps[-1].num_remaining_tokens:,} left")
    return " + ".join(parts)


_PARTS = (palette.HIT, palette.COMPUTED, palette.SCHEDULED, palette.REMAINING)
_HATCHES = {palette.HIT: "////", palette.COMPUTED: "", palette.SCHEDULED: "", palette.REMAINING: "...."}


def _keys(data: PromptProgress) -> list[Key]:
    sizes = [_sizes(data, step) for step in data.steps]
    present = [look for look, *column in zip(_PARTS, *sizes, strict=True) if any(column)]
    return [Key(look, look.label.partition(":")[0], _HATCHES[look]) for look in present]


def _sizes(data: PromptProgress, step: ProgressStep) -> tuple[int, int, int, int]:
    """Tokens of each of ``_PARTS``."""
    reused = data.num_reused_tokens
    return reused, step.num_cached_tokens - reused, step.num_scheduled_tokens, step.num_remaining_tokens


def _draw_step(ax: Axes, data: PromptProgress, step: ProgressStep, row: int) -> None:
    start = 0
    for look, size in zip(_PARTS, _sizes(data, step), strict=True):
        if size:
            _draw_part(ax, look, start, size, row, data.num_tokens)
        start += size
    after = step.num_cached_tokens + step.num_scheduled_tokens
    ax.annotate(
        f"num_cached_tokens\n{step.num_cached_tokens} → {after}",
        (1, row),
        (8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=SMALL_PT,
        color=INK,
        va="center",
    )


def _draw_part(ax: Axes, look: Look, start: int, size: int, row: int, num_tokens: int) -> None:
    ax.barh(row, size, left=start, height=0.66, color=look.light, edgecolor=GROUND, linewidth=1.0, hatch=_HATCHES[look])
    if size / num_tokens * width_pt(ax) >= len(str(size)) * 7 + 6:
        box = {"facecolor": look.light, "edgecolor": "none", "pad": 1.5} if _HATCHES[look] else None
        ax.text(
            start + size / 2,
            row,
            str(size),
            fontsize=TITLE_PT,
            fontweight="bold",
            color=ink_on(look.light),
            ha="center",
            va="center_baseline",
            bbox=box,
        )


def _draw_blocks(ax: Axes, data: PromptProgress, num_rows: int) -> None:
    """The block table: each block over the tokens that it holds."""
    size = data.block_size
    is_named = size / data.num_tokens * width_pt(ax) >= 16
    for index, block in enumerate(data.block_table):
        start = index * size
        width = min(size, data.num_tokens - start)
        is_reused = start < data.num_reused_tokens
        look = palette.HIT if is_reused else palette.FREE
        ax.barh(0, width, left=start, height=0.5, color=look.light, edgecolor=MUTED, linewidth=0.8, clip_on=False)
        if index and is_named:
            ax.plot([start, start], [-0.25, num_rows + 0.5], color=MUTED, linewidth=0.6, linestyle=":", zorder=3)
        if is_named:
            ax.text(
                start + width / 2,
                0,
                str(block),
                fontsize=TEXT_PT,
                color=ink_on(look.light),
                ha="center",
                va="center_baseline",
            )


PROMPT_PROGRESS = Sheet(_draw, _height_in)
