"""What every request does in every step: who waits, who is computed, who gives way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from viz import palette
from viz.figures.axis import StepAxis, StepRange, along_steps
from viz.figures.canvas import TEXT_PT, Key, heading, shortened, style
from viz.figures.history import Activity, History, Lifeline, Source
from viz.figures.panel import Panel
from viz.figures.timeline_image import draw_image, image_colour
from viz.figures.timeline_rows import BARS, draw_rows, spans_within

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DETAILED_ROWS, MAX_DETAILED_STEPS = 48, 240
"""Above these a timeline is drawn as an image, without numbers."""


def timeline(
    source: Source | History, *, steps: StepRange | None = None, by_time: bool = False, ax: Axes | None = None
) -> Figure:
    """One row a request, one column a step (or, ``by_time``, as wide as the step lasts).

    Small runs show the tokens of each prefill chunk and prefix hit; large ones become an image in which a column
    shows a prefill or a preemption if any of its steps has one, and else what its middle step shows.
    """
    return TIMELINE.figure(source, steps, by_time, ax)


def _draw(ax: Axes, history: History, axis: StepAxis) -> None:
    rows = _rows_within(history, axis)
    is_detailed = _is_detailed(rows, axis)
    if is_detailed:
        draw_rows(ax, history, axis, rows)
    else:
        draw_image(ax, history, axis, rows)
    style(ax)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    along_steps(ax, axis)
    _label_rows(ax, [history.requests[row] for row in rows], 1 if is_detailed else _round_step(len(rows) / 12))
    notes = [] if is_detailed else [f"{len(rows):,} requests, in order of arrival"]
    if history.num_rejected:
        notes.append(f"{history.num_rejected:,} rejected")
    keys = _keys(history, axis, rows, is_detailed)
    heading(ax, history.title("What each request does"), keys, history.problem, ", ".join(notes))


def _height_in(history: History, axis: StepAxis) -> float:
    rows = _rows_within(history, axis)
    return 1.3 + max(len(rows), 3) * 0.29 if _is_detailed(rows, axis) else 6.5


def _is_detailed(rows: list[int], axis: StepAxis) -> bool:
    return len(rows) <= MAX_DETAILED_ROWS and len(axis) <= MAX_DETAILED_STEPS


def _rows_within(history: History, axis: StepAxis) -> list[int]:
    """The requests that are there in any of the drawn steps."""
    first, last = axis.positions[0], axis.positions[-1]
    return [
        row
        for row, life in enumerate(history.requests)
        if life.changes[0][0] <= last and (life.end is None or life.end > max(first, life.changes[0][0]))
    ]


def _label_rows(ax: Axes, lives: list[Lifeline], every: int) -> None:
    places = range(0, len(lives), every)
    ax.set_yticks(list(places), [shortened(str(lives[place].request), 16) for place in places], fontsize=TEXT_PT)
    ax.set_ylabel("request")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _round_step(least: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 ... that is not below ``least``."""
    power = 1
    while 10 * power <= least:
        power *= 10
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _keys(history: History, axis: StepAxis, rows: list[int], is_detailed: bool) -> list[Key]:
    lives = [history.requests[row] for row in rows]
    present = {span.activity for life in lives for span in spans_within(life, axis, len(history.steps))}
    has_ends = any(life.end is not None and life.end - 1 in axis.positions for life in lives)
    has_hits = any(position in axis.positions for life in lives for position, _ in life.hits)
    keys = []
    for look in palette.ACTIVITIES:
        label = look.label.partition(":")[0]
        if look is palette.HIT and has_hits and is_detailed:
            keys.append(Key(look, label))
        elif look is palette.FINISHED and has_ends and is_detailed:
            keys.append(Key(look, label, is_glyph=True))
        elif look in (activity.look for activity in present):
            activity = Activity(look)
            bar = BARS[activity]
            key = Key(look, label, bar.hatch, bar.height)
            keys.append(key if is_detailed else Key(replace(look, light=image_colour(activity)), label))
    return keys


TIMELINE = Panel(_draw, _height_in)
