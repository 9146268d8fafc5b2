"""What every request does in every step: who waits, who is computed, who gives way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from viz import palette
from viz.figures.axis import StepAxis, StepRange, along_steps
from viz.figures.canvas import (
    GROUND,
    INK,
    MARKERS,
    SMALL_PT,
    TEXT_PT,
    Key,
    heading,
    style,
    width_pt,
)
from viz.figures.history import Activity, History, Lifeline, Source, Span
from viz.figures.panel import Panel
from viz.figures.timeline_image import draw_image, image_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DETAILED_ROWS, MAX_DETAILED_STEPS = 48, 240
"""Above these a timeline is drawn as an image, without numbers."""


@dataclass(frozen=True)
class _Bar:
    height: float
    hatch: str = ""


_BARS = {
    Activity.WAITING: _Bar(0.30),
    Activity.HELD: _Bar(0.30, "////"),
    Activity.PREFILL: _Bar(0.76),
    Activity.DECODE: _Bar(0.76),
    Activity.IDLE: _Bar(0.09),
    Activity.PREEMPTED: _Bar(0.30, "xxxx"),
}
_HIT_SHARE = 0.42
"""Of a chunk's bar, the part that shows the prefix hit before it."""


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
        _draw_rows(ax, history, axis, rows)
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


def spans_within(life: Lifeline, axis: StepAxis, num_steps: int) -> list[Span]:
    """What a request does within the drawn steps."""
    first, last = axis.positions[0], axis.positions[-1]
    return [
        Span(span.activity, max(span.first, first), min(span.last, last))
        for span in life.spans(num_steps)
        if span.first <= last and span.last >= first
    ]


# ---- one row a request -----------------------------------------------------------------------------------------------


def _draw_rows(ax: Axes, history: History, axis: StepAxis, rows: list[int]) -> None:
    by_activity: dict[Activity, list[tuple[int, float, float]]] = {activity: [] for activity in Activity}
    for y, row in enumerate(rows):
        life = history.requests[row]
        for span in spans_within(life, axis, len(history.steps)):
            if span.activity is not Activity.PREFILL:
                by_activity[span.activity].append((y, *_place(axis, span.first, span.last)))
        if axis.by_time:
            by_activity[Activity.WAITING] += [(y, *place) for place in _wait_for_a_step(life, axis)]
        chunks = [chunk for chunk in life.chunks if chunk.position in axis.positions]
        by_activity[Activity.PREFILL] += [(y, *_place(axis, chunk.position, chunk.position)) for chunk in chunks]
        _draw_chunks(ax, life, axis, y)
        _draw_reasons(ax, life, axis, y)
        _draw_marks(ax, life, axis, y)
    for activity, places in by_activity.items():
        _draw_bars(ax, activity, places)


def _wait_for_a_step(life: Lifeline, axis: StepAxis) -> list[tuple[float, float]]:
    """From a request's arrival to the start of the next step, if that is drawn."""
    first = life.changes[0][0]
    if first not in axis.positions:
        return []
    left, _ = _place(axis, first, first)
    arrival = max(axis.bounds[0], axis.at_time(life.arrival_s))
    return [(arrival, left)] if arrival < left else []


def _place(axis: StepAxis, first: int, last: int) -> tuple[float, float]:
    start = axis.positions.start
    return float(axis.left[first - start]), float(axis.right[last - start])


def _draw_bars(ax: Axes, activity: Activity, places: list[tuple[int, float, float]]) -> None:
    from matplotlib.collections import PolyCollection

    bar = _BARS[activity]
    corners = [
        [
            (left, y - bar.height / 2),
            (right, y - bar.height / 2),
            (right, y + bar.height / 2),
            (left, y + bar.height / 2),
        ]
        for y, left, right in places
    ]
    ax.add_collection(
        PolyCollection(
            corners, facecolor=activity.look.light, edgecolor=GROUND, linewidth=0.6, hatch=bar.hatch, zorder=2
        ),
        autolim=False,
    )


def _draw_chunks(ax: Axes, life: Lifeline, axis: StepAxis, y: int) -> None:
    """The tokens of each chunk; and below them those reused from the cache, if the request had a hit in that step."""
    hits = dict(life.hits)
    height = _BARS[Activity.PREFILL].height
    for chunk in life.chunks:
        if chunk.position not in axis.positions:
            continue
        left, right = _place(axis, chunk.position, chunk.position)
        reused = hits.get(chunk.position)
        middle = float(y)
        if reused is not None:
            split = y + height * (0.5 - _HIT_SHARE)
            ax.fill_between(
                [left, right], split, y + height / 2, color=palette.HIT.light, edgecolor=GROUND, linewidth=0.6, zorder=3
            )
            _number(ax, axis, (left, right), (split + y + height / 2) / 2, reused)
            middle = (split + y - height / 2) / 2
        _number(ax, axis, (left, right), middle, chunk.tokens)


def _number(ax: Axes, axis: StepAxis, place: tuple[float, float], y: float, number: int) -> None:
    """A number in a cell, if it has the room for it."""
    first, last = axis.bounds
    room_pt = (place[1] - place[0]) / (last - first) * width_pt(ax)
    text = str(number)
    if room_pt >= len(text) * 4.6 + 2:
        ax.text(
            sum(place) / 2, y, text, fontsize=7, color=GROUND, ha="center", va="center_baseline", zorder=4, clip_on=True
        )


def _draw_reasons(ax: Axes, life: Lifeline, axis: StepAxis, y: int) -> None:
    """Why it is held, above the bar, if there is room."""
    for first, last, reason in life.holds:
        first, last = max(first, axis.positions[0]), min(last, axis.positions[-1])
        if first > last:
            continue
        left, right = _place(axis, first, last)
        text = reason.replace("_", " ")
        if (right - left) / (axis.bounds[1] - axis.bounds[0]) * width_pt(ax) >= len(text) * 4.2 + 4:
            ax.text(
                (left + right) / 2,
                y - 0.17,
                text,
                fontsize=7,
                color=INK,
                ha="center",
                va="bottom",
                zorder=4,
                clip_on=True,
            )


def _draw_marks(ax: Axes, life: Lifeline, axis: StepAxis, y: int) -> None:
    """Where it was preempted, and where it ended."""
    for position in life.preemptions:
        if position in axis.positions:
            left, _ = _place(axis, position, position)
            ax.plot(
                left,
                y - 0.22,
                MARKERS["preempted"],
                color=palette.PREEMPTED.light,
                markersize=6,
                markeredgecolor=GROUND,
                markeredgewidth=0.6,
                zorder=5,
                clip_on=False,
            )
    if life.end is None or life.end - 1 not in axis.positions:
        return
    _, right = _place(axis, life.end - 1, life.end - 1)
    ax.plot(
        right,
        y,
        MARKERS["finished"],
        color=palette.FINISHED.light,
        markersize=4.5,
        markeredgecolor=GROUND,
        markeredgewidth=0.6,
        zorder=5,
        clip_on=False,
    )
    if life.finish_reason in ("aborted", "error"):
        ax.annotate(
            life.finish_reason,
            (right, y),
            (5, 0),
            textcoords="offset points",
            fontsize=SMALL_PT,
            color=INK,
            va="center",
            zorder=5,
            annotation_clip=True,
        )


# ---- around it -------------------------------------------------------------------------------------------------------


def _label_rows(ax: Axes, lives: list[Lifeline], every: int) -> None:
    places = range(0, len(lives), every)
    ax.set_yticks(list(places), [_shortened(str(lives[place].request)) for place in places], fontsize=TEXT_PT)
    ax.set_ylabel("request")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _round_step(least: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 ... that is not below ``least``."""
    power = 1
    while 10 * power <= least:
        power *= 10
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _shortened(name: str, limit: int = 16) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _keys(history: History, axis: StepAxis, rows: list[int], is_detailed: bool) -> list[Key]:
    lives = [history.requests[row] for row in rows]
    present = {span.activity for life in lives for span in spans_within(life, axis, len(history.steps))}
    has_hits = any(position in axis.positions for life in lives for position, _ in life.hits)
    keys = []
    for look in palette.ACTIVITIES:
        label = look.label.partition(":")[0]
        if look is palette.HIT and has_hits and is_detailed:
            keys.append(Key(look, label))
        elif look in (activity.look for activity in present):
            activity = Activity(look)
            bar = _BARS[activity]
            key = Key(look, label, bar.hatch, bar.height)
            keys.append(key if is_detailed else Key(replace(look, light=image_colour(activity)), label))
    return keys


TIMELINE = Panel(_draw, _height_in)
