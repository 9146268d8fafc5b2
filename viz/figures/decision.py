"""One decode decision, queue by queue: why the request in hand cannot be preempted by its own growth."""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.trace.events import (
    AnyEvent,
    BlocksAllocated,
    BlocksFreed,
    DecodeScheduled,
    Preempted,
    RequestId,
    StepStarted,
)
from nanovllm.trace.replay import Replay
from viz.figures.history import Source
from viz.figures.inside_step import walk_preempting_step


@dataclass(frozen=True)
class QueueFrame:
    """The queues at one moment within a step. A request is in exactly one of the four places."""

    action: str
    scheduled: tuple[RequestId, ...]
    in_hand: RequestId | None
    running: tuple[RequestId, ...]
    waiting: tuple[RequestId, ...]
    num_free_blocks: int
    preempted: RequestId | None = None
    """The one that has just been preempted."""


@dataclass(frozen=True)
class QueueInHand:
    """One step in frames."""

    step: int
    order: tuple[RequestId, ...]
    """``running`` as the step found it, from head to tail; then those that joined it in the step."""
    frames: tuple[QueueFrame, ...]


def queue_in_hand_data(source: Source, step: int | None = None) -> QueueInHand:
    """Replay a step that preempts and note the queues at each of its moves.

    ``step`` None: the first that preempts a request for another.

    The trace tells who is in hand: the one that others are preempted for. Those that stood before it in ``running``
    and are not preempted are scheduled by then, for decodes are decided in the order of that queue. Raises
    ``UserError`` if nobody is preempted in the step.
    """
    step, states = walk_preempting_step(source, step)
    narrator = _Narrator()
    for event, replay in states:
        narrator.follow(event, replay)
    return QueueInHand(step, tuple(narrator.order), tuple(narrator.frames))


class _Narrator:
    def __init__(self) -> None:
        self.frames: list[QueueFrame] = []
        self.order: list[RequestId] = []
        self._num_decided = 0
        """How many of ``order`` have been in hand."""
        self._in_hand: RequestId | None = None
        self._victim: RequestId | None = None
        self._tail: RequestId | None = None
        """Who stood at the tail of ``running`` when the victim was chosen."""
        self._running: tuple[RequestId, ...] = ()
        self._waiting: tuple[RequestId, ...] = ()
        self._num_free_blocks = 0

    def follow(self, event: AnyEvent, replay: Replay) -> None:
        if isinstance(event, Preempted):
            if event.for_request != self._in_hand:
                self._take(event.for_request)  # before this event: the taking has no event of its own
            self._victim = event.request
            self._tail = self._running[-1]
        self._running, self._waiting = tuple(replay.running), tuple(replay.waiting)
        self._num_free_blocks = len(replay.free_blocks)
        self.order += [request for request in self._running if request not in self.order]
        if isinstance(event, StepStarted):
            self._note("The step begins")
        elif isinstance(event, BlocksFreed) and self._victim is not None:
            self._preempt(self._victim)
        elif isinstance(event, BlocksAllocated) and event.request == self._in_hand:
            self._pass()
            self._note(f"{event.request} gets block {', '.join(map(str, event.blocks))} and is scheduled")
        elif isinstance(event, DecodeScheduled):
            self._num_decided = 0
            self._note("All are decided: the scheduled ones go back to the head, in their old order")

    def _take(self, request: RequestId) -> None:
        self._in_hand = request
        self._num_decided = self.order.index(request)
        self._note(f"{request} is taken from the head: in hand, no longer in the queue. It needs a block")

    def _preempt(self, victim: RequestId) -> None:
        in_hand, tail = self._in_hand, self._tail
        self._victim = None
        if victim != in_hand:
            end = "the tail" if victim == tail else "the queue"
            self._note(f"{victim} is taken from {end} and preempted, so that {in_hand} can go on", victim)
            return
        self._pass()
        self._note(f"{victim} preempts itself" + (": no one else is left" if tail == victim else ""), victim)

    def _pass(self) -> None:
        self._in_hand = None
        self._num_decided += 1

    def _note(self, action: str, preempted: RequestId | None = None) -> None:
        scheduled = tuple(request for request in self.order[: self._num_decided] if request in self._running)
        rest = tuple(r for r in self._running if r not in scheduled and r != self._in_hand)
        self.frames.append(
            QueueFrame(action, scheduled, self._in_hand, rest, self._waiting, self._num_free_blocks, preempted)
        )
