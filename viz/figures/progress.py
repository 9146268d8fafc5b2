"""How far a prompt is computed, chunk by chunk: what the cache gave, what each step adds, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanovllm.errors import UserError
from nanovllm.trace.events import AnyEvent, ChunkScheduled, Preempted, PrefixHit, RequestId
from nanovllm.trace.replay import Replay
from viz import palette
from viz.figures.canvas import (
    GROUND,
    INK,
    MUTED,
    SMALL_PT,
    TEXT_PT,
    TITLE_PT,
    Key,
    axes_or_new,
    figure_of,
    heading,
    width_pt,
)
from viz.figures.history import Source, events_of, problem_of
from viz.figures.owners import ink_on
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ProgressStep:
    """The counters of a request in one step, when its chunk has been scheduled and is not yet computed."""

    step: int
    num_cached_tokens: int
    num_scheduled_tokens: int
    num_remaining_tokens: int


@dataclass(frozen=True)
class PromptProgress:
    """One prefill of a request: ``num_reused_tokens`` + the scheduled tokens of all steps = ``num_tokens``, if the
    trace goes that far."""

    request: RequestId
    num_tokens: int
    num_reused_tokens: int
    block_size: int
    block_table: tuple[int, ...]
    steps: tuple[ProgressStep, ...]


def prompt_progress_data(source: Source, request: RequestId | None = None, admission: int = 0) -> PromptProgress:
    """Replay the trace and read a request's counters whenever a chunk of it is scheduled.

    ``request`` None: the first whose prompt is cut into chunks, else the first of all. ``admission``: 0 for its first
    prefill, 1 for the one after its first preemption, and so on. Raises ``UserError`` if the trace has none such.
    """
    name, events = events_of(source)
    request = _chunked_request(events) if request is None else request
    replay = Replay(name)
    num_admissions, num_reused_tokens = 0, 0
    steps: list[ProgressStep] = []
    progress: PromptProgress | None = None
    for event in events:
        replay.apply(event)
        if not isinstance(event, (PrefixHit, ChunkScheduled, Preempted)) or event.request != request:
            continue
        state = replay.requests[request]
        if isinstance(event, Preempted):
            num_admissions += 1
        elif num_admissions == admission and isinstance(event, PrefixHit):
            num_reused_tokens = state.num_cached_tokens
        elif num_admissions == admission:
            cached, scheduled = state.num_cached_tokens, state.num_scheduled_tokens
            steps.append(ProgressStep(replay.step, cached, scheduled, state.num_tokens - cached - scheduled))
            progress = PromptProgress(
                request,
                state.num_tokens,
                num_reused_tokens,
                replay.pool.block_size,
                tuple(state.block_table),
                tuple(steps),
            )
    if request is None:
        raise UserError(f"{name}: no request is ever prefilled in this trace")
    if progress is None:
        raise UserError(f"{name}: the trace has no prefill {admission} of request {request!r} (they count from 0)")
    return progress


def _chunked_request(events: Sequence[AnyEvent]) -> RequestId | None:
    chunks = [event for event in events if isinstance(event, ChunkScheduled)]
    return next((chunk.request for chunk in chunks if chunk.remaining), chunks[0].request if chunks else None)


def prompt_progress(
    source: Source, request: RequestId | None = None, *, admission: int = 0, ax: Axes | None = None
) -> Figure:
    """A bar of the prompt's tokens for each step that computes a chunk of it, under the blocks that hold them."""
    data = prompt_progress_data(source, request, admission)
    ax = axes_or_new(ax, 1.5 + 0.5 * (len(data.steps) + 1))
    for row, step in enumerate(data.steps, start=1):
        _draw_step(ax, data, step, row)
    _draw_blocks(ax, data)
    ax.set_xlim(0, data.num_tokens)
    ax.set_ylim(len(data.steps) + 0.5, -0.5)
    ax.set_xlabel(f"token of request {data.request}")
    ax.set_yticks(
        range(len(data.steps) + 1),
        ["KV block", *(f"step {step.step}" for step in data.steps)],
        fontsize=TEXT_PT,
        color=INK,
    )
    if len(data.block_table) <= 16:
        ax.set_xticks([*range(0, data.num_tokens, data.block_size), data.num_tokens])
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=TEXT_PT, color=MUTED)
    for spine in ax.spines.values():
        spine.set_visible(False)
    parts = [f"{step.num_scheduled_tokens}" for step in data.steps]
    if data.num_reused_tokens:
        parts.insert(0, f"{data.num_reused_tokens} reused")
    left = data.steps[-1].num_remaining_tokens
    total = " + ".join([*parts, *([f"{left} left"] if left else [])])
    heading(ax, f"Request {data.request}: {data.num_tokens} tokens = {total}", _keys(data), problem_of(source))
    return figure_of(ax)


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


def _draw_blocks(ax: Axes, data: PromptProgress) -> None:
    """The block table: each block over the tokens that it holds."""
    size = data.block_size
    is_named = size / data.num_tokens * width_pt(ax) >= 16
    for index, block in enumerate(data.block_table):
        start = index * size
        width = min(size, data.num_tokens - start)
        is_reused = start < data.num_reused_tokens
        look = palette.HIT if is_reused else palette.FREE
        ax.barh(0, width, left=start, height=0.5, color=look.light, edgecolor=MUTED, linewidth=0.8, clip_on=False)
        if index:
            ax.plot([start, start], [-0.25, len(data.steps) + 0.5], color=MUTED, linewidth=0.6, linestyle=":", zorder=3)
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
