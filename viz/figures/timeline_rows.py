"""A timeline in which every request has a bar: with numbers, reasons and marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from viz import palette
from viz.figures.axis import StepAxis
from viz.figures.canvas import GROUND, INK, MARKERS, SMALL_PT, width_pt
from viz.figures.history import Activity, History, Lifeline, Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Bar:
    """How high it is, of the room that a request has, and its hatch."""

    height: float
    hatch: str = ""


BARS = {
    Activity.WAITING: Bar(0.30),
    Activity.HELD: Bar(0.30, "////"),
    Activity.PREFILL: Bar(0.76),
    Activity.DECODE: Bar(0.76),
    Activity.IDLE: Bar(0.09),
    Activity.PREEMPTED: Bar(0.30, "xxxx"),
}
"""Full height for those who are computed, less for those who are not: so it reads in grey as well."""
_HIT_SHARE = 0.42
"""Of a chunk's bar, the part that shows the prefix hit before it."""


def draw_rows(ax: Axes, history: History, axis: StepAxis, rows: list[int]) -> None:
    """Draw these requests, from top to bottom."""
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


def spans_within(life: Lifeline, axis: StepAxis, num_steps: int) -> list[Span]:
    """What a request does within the drawn steps."""
    first, last = axis.positions[0], axis.positions[-1]
    return [
        Span(span.activity, max(span.first, first), min(span.last, last))
        for span in life.spans(num_steps)
        if span.first <= last and span.last >= first
    ]


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

    bar = BARS[activity]
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
    height = BARS[Activity.PREFILL].height
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
