"""Draws one decode decision: why the request in hand is safe from the preemptions that it causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanovllm.trace.events import RequestId
from viz import palette
from viz.figures.boxes import draw_arrow, draw_arrow_below, draw_box, draw_ghost, draw_text, lay_out
from viz.figures.canvas import WIDTH_IN, heading
from viz.figures.decision import QueueFrame, QueueInHand, queue_in_hand_data
from viz.figures.history import Source, problem_of
from viz.figures.panel import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_BOXES, MAX_FRAMES = 5, 10
"""Of a longer queue the middle is left out, of more moves those before the last."""
_ROW, _GAP, _LEAST_WIDTH = 1.8, 1.0, 15.0


def queue_in_hand(source: Source, step: int | None = None, *, ax: Axes | None = None) -> Figure:
    """The queues of a step that preempts, one row a move: scheduled, in hand, running from head to tail, waiting.

    ``step`` None: the first that preempts a request for another. Raises ``UserError`` for a step that does not.
    """
    return QUEUE_IN_HAND.figure(queue_in_hand_data(source, step), problem_of(source), ax)


def _draw(ax: Axes, data: QueueInHand, problem: str | None) -> None:
    places = _Places.of(data)
    frames = _shown(data.frames)
    lay_out(ax, places.width, len(frames) * _ROW + 0.45)
    for x, title in places.titles:
        draw_text(ax, (x + 0.08, 0.2), title, is_muted=True)
    for row, frame in enumerate(frames):
        _draw_frame(ax, places, frame, 0.95 + row * _ROW)
        if row:
            _draw_move(ax, places, frames[row - 1], frame, 0.95 + row * _ROW + 0.8)
    left_out = len(data.frames) - len(frames)
    note = f"{left_out} moves before the last are left out" if left_out else ""
    heading(ax, f"Step {data.step}: who is in hand, and who gives way", problem=problem, note=note)


def _height_in(data: QueueInHand) -> float:
    return 0.5 + (len(_shown(data.frames)) * _ROW + 0.45) * WIDTH_IN / _Places.of(data).width


def _shown(frames: Sequence[QueueFrame]) -> list[QueueFrame]:
    return list(frames) if len(frames) <= MAX_FRAMES else [*frames[: MAX_FRAMES - 1], frames[-1]]


@dataclass(frozen=True)
class _Places:
    """Where each of the four places begins, in boxes, and which slot of ``running`` each request stands in."""

    in_hand: float
    running: float
    waiting: float
    width: float
    slots: dict[RequestId, int]
    gaps: dict[int, int]
    """Slots that stand for several requests, and how many."""

    @classmethod
    def of(cls, data: QueueInHand) -> _Places:
        slots, gaps = _slots(data)
        in_hand = _widest(frame.scheduled for frame in data.frames) + _GAP
        running = in_hand + 1 + _GAP
        waiting = running + max(4, len(slots) + len(gaps)) + _GAP
        width = waiting + max(3, _widest(frame.waiting for frame in data.frames))
        return cls(in_hand, running, waiting, max(width, _LEAST_WIDTH), slots, gaps)

    @property
    def titles(self) -> tuple[tuple[float, str], ...]:
        """What stands where."""
        return (
            (0.0, "scheduled"),
            (self.in_hand, "in hand"),
            (self.running, "running: head → tail"),
            (self.waiting, "waiting: head → tail"),
        )


def _slots(data: QueueInHand) -> tuple[dict[RequestId, int], dict[int, int]]:
    """The requests of ``running`` that take part or stand at its ends get a slot; the others between them share one."""
    order = data.order
    actors = {request for frame in data.frames for request in (frame.in_hand, frame.preempted) if request is not None}
    ends = {*order[:2], *order[-2:]} if len(order) > MAX_BOXES else set(order)
    slots: dict[RequestId, int] = {}
    gaps: dict[int, int] = {}
    slot, skipped = 0, 0
    for request in order:
        if request not in actors | ends:
            skipped += 1
            continue
        if skipped:
            gaps[slot] = skipped
            slot, skipped = slot + 1, 0
        slots[request] = slot
        slot += 1
    return slots, gaps


def _widest(queues: Iterable[tuple[RequestId, ...]]) -> int:
    return max(2, *(min(len(queue), MAX_BOXES) for queue in queues))


def _draw_frame(ax: Axes, places: _Places, frame: QueueFrame, top: float) -> None:
    y = top + 0.8
    draw_text(ax, (0.08, top), frame.action, is_bold=True)
    blocks = "no block is free" if frame.num_free_blocks == 0 else f"free blocks: {frame.num_free_blocks}"
    draw_text(ax, (places.width - 0.08, top), blocks, is_muted=True, align="right")
    _draw_queue(ax, (0.5, y), frame.scheduled, palette.DECODE.light)
    if frame.in_hand is not None:
        draw_box(ax, (places.in_hand + 0.5, y), str(frame.in_hand), palette.ALLOCATED.light)
    for request, slot in places.slots.items():
        place = (places.running + slot + 0.5, y)
        if request in frame.running:
            draw_box(ax, place, str(request), palette.COMPUTED.light)
        else:
            draw_ghost(ax, place)
    for slot, count in places.gaps.items():
        draw_text(ax, (places.running + slot + 0.5, y), f"+{count}", is_muted=True, align="center")
    _draw_queue(ax, (places.waiting + 0.5, y), frame.waiting, palette.WAITING.light, frame.preempted)


def _draw_queue(
    ax: Axes, place: tuple[float, float], queue: Sequence[RequestId], colour: str, victim: RequestId | None = None
) -> None:
    x, y = place
    num_left_out = len(queue) - MAX_BOXES + 1 if len(queue) > MAX_BOXES else 0
    head = len(queue) if not num_left_out else MAX_BOXES - 2
    for index, request in enumerate([*queue[:head], *queue[head + num_left_out :]]):
        offset = index if index < head else index + 1
        draw_box(ax, (x + offset, y), str(request), palette.PREEMPTED.light if request == victim else colour)
    if num_left_out:
        draw_text(ax, (x + head, y), f"+{num_left_out}", is_muted=True, align="center")


def _draw_move(ax: Axes, places: _Places, before: QueueFrame, after: QueueFrame, y: float) -> None:
    """An arrow for the request that has changed its place."""

    def slot(request: RequestId) -> tuple[float, float]:
        return places.running + places.slots[request] + 0.5, y

    hand = places.in_hand + 0.5, y
    if after.preempted is not None:
        start = hand if after.preempted == before.in_hand else slot(after.preempted)
        draw_arrow(ax, start, (places.waiting + 0.5, y), palette.PREEMPTED.light)
    elif after.in_hand is not None and after.in_hand != before.in_hand:
        arrow = draw_arrow_below if places.slots[after.in_hand] else draw_arrow
        arrow(ax, slot(after.in_hand), hand)
    elif before.in_hand is not None and before.in_hand in after.scheduled:
        draw_arrow(ax, hand, (min(len(after.scheduled), MAX_BOXES) - 0.5, y))


QUEUE_IN_HAND = Sheet(_draw, _height_in)
