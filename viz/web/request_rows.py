"""The requests of a run as rows: what stands still, how each moves, and its place in the queues."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    TokensAppended,
)
from nanovllm.trace.replay import Replay
from nanovllm.trace.state.request_state import RequestState
from viz import palette
from viz.web.tracks import Track

NOWHERE, WAITING, RUNNING = range(3)
"""Where a request stands: in no queue (it has ended), or in one of the two."""

_PREFILL, _DECODE, _HELD, _PREEMPTED = map(
    palette.ACTIVITIES.index, (palette.PREFILL, palette.DECODE, palette.HELD, palette.PREEMPTED)
)
_AT_REST = tuple(map(palette.ACTIVITIES.index, (palette.FINISHED, palette.WAITING, palette.IDLE)))
"""What a request does of which no event tells, by where it stands."""

_QUEUES = {"waiting": WAITING, "running": RUNNING, "finished": NOWHERE}
MOST_SECONDS = 2e6
NEVER = -1
"""In place of a frame: it has not come to that."""


def nanoseconds(time_s: float) -> int:
    """A time as a whole number, exact in a column and in JavaScript: up to ``MOST_SECONDS``, later ones are cut."""
    return round(max(-MOST_SECONDS, min(MOST_SECONDS, time_s)) * 1e9)


@dataclass(slots=True)
class Row:
    """A request's row while it lives."""

    index: int
    state: RequestState
    queue: int = NOWHERE
    rank: int = 0
    num_hit_tokens: int = 0
    activity: int | None = None
    """What it does in the frame that is being gathered (an index of ``palette.ACTIVITIES``), if an event told."""
    num_scheduled_tokens: int = 0
    was_looked_up: bool = False
    """Whether its prompt has been looked up in the cache and counted."""


class RequestRows:
    """Follows a replay and writes down, frame by frame, what changed of each request."""

    def __init__(self) -> None:
        self.ids: list[RequestId] = []
        self.by_id: dict[RequestId, Row] = {}
        """Rows of the requests that have not ended, or ended in this frame."""
        self.finish_reasons: list[str] = []
        self._motion = Track(("activity", "scheduled", "hit"), ("tokens", "cached"))
        self._place = Track(("queue", "rank", "preemptions"))
        self._rows: dict[int, Row] = {}
        self._touched: set[int] = set()
        self._touched_before: set[int] = set()
        self._moved: set[int] = set()
        names = ("arrival_ns", "prompt", "max_tokens", "added", "first_token", "ended", "reason")
        self._facts = {name: array("q") for name in names}
        self._next_head, self._next_tail = -1, 0

    # ---- events ------------------------------------------------------------------------------------------------------

    def observe(self, event: AnyEvent, replay: Replay, frame: int) -> None:
        """Note which rows an event concerns that was just applied, and what it says of them."""
        if isinstance(event, DecodeScheduled):
            for request in event.requests:
                self._schedule(request, _DECODE, 1)
        elif isinstance(event, TokensAppended):
            for request in event.requests:
                row = self._touch(request)
                if row.state.num_completion_tokens == 1:
                    self._facts["first_token"][row.index] = frame
        elif isinstance(event, ChunkScheduled):
            self._schedule(event.request, _PREFILL, event.tokens)
            self._queue_up(self.by_id[event.request], replay)
        elif isinstance(event, PrefixHit):
            self._touch(event.request).num_hit_tokens = event.tokens
        elif isinstance(event, Held):
            self._touch(event.request).activity = _HELD
        elif isinstance(event, Preempted):
            row = self._touch(event.request)
            row.activity, row.num_hit_tokens = _PREEMPTED, 0
            self._queue_up(row, replay)
        elif isinstance(event, RequestAdded):
            self._add(event, replay, frame)
        elif isinstance(event, RequestFinished):
            self._finish(event, frame)

    def _touch(self, request: RequestId) -> Row:
        row = self.by_id[request]
        self._touched.add(row.index)
        return row

    def _schedule(self, request: RequestId, activity: int, num_tokens: int) -> None:
        row = self._touch(request)
        row.activity, row.num_scheduled_tokens = activity, num_tokens

    def _add(self, event: RequestAdded, replay: Replay, frame: int) -> None:
        row = Row(len(self.ids), replay.requests[event.request])
        self.ids.append(event.request)
        self.by_id[event.request] = self._rows[row.index] = row
        self._touched.add(row.index)
        facts = nanoseconds(event.arrival), event.prompt_tokens, event.max_tokens, frame, NEVER, NEVER, NEVER
        for column, value in zip(self._facts.values(), facts, strict=True):
            column.append(value)
        self._queue_up(row, replay)

    def _queue_up(self, row: Row, replay: Replay) -> None:
        """Number a row that has just entered a queue, so that ranks sort as the queue does."""
        queue = _QUEUES[row.state.status]
        if queue == row.queue:
            return
        row.queue = queue
        self._moved.add(row.index)
        order = replay.waiting if queue == WAITING else replay.running
        if order[-1] == row.state.request:
            row.rank, self._next_tail = self._next_tail, self._next_tail + 1
        else:
            assert order[0] == row.state.request, f"{row.state.request!r} entered a queue between others"
            row.rank, self._next_head = self._next_head, self._next_head - 1

    def _finish(self, event: RequestFinished, frame: int) -> None:
        row = self._touch(event.request)
        row.queue = NOWHERE
        self._moved.add(row.index)
        if event.reason not in self.finish_reasons:
            self.finish_reasons.append(event.reason)
        self._facts["ended"][row.index] = frame
        self._facts["reason"][row.index] = self.finish_reasons.index(event.reason)

    # ---- frames ------------------------------------------------------------------------------------------------------

    def end_frame(self, frame: int) -> None:
        """Write down the rows that may differ from the frame before."""
        for index in self._touched | self._touched_before | self._motion.moving:
            row = self._rows[index]
            state = row.state
            activity = _AT_REST[row.queue] if row.activity is None else row.activity
            counters = row.num_scheduled_tokens, row.num_hit_tokens, state.num_tokens, state.num_cached_tokens
            self._motion.put(index, frame, (activity, *counters))
            row.activity, row.num_scheduled_tokens = None, 0
        for index in self._moved:
            row = self._rows[index]
            self._place.put(index, frame, (row.queue, row.rank, row.state.num_preemptions))
            if row.queue == NOWHERE:
                self._forget(row)
        self._touched_before, self._touched = self._touched, set()
        self._moved.clear()

    def _forget(self, row: Row) -> None:
        self._motion.end(row.index)
        self._place.end(row.index)
        self._touched.discard(row.index)
        del self._rows[row.index]
        if self.by_id[row.state.request] is row:  # an ended request's id may have come again
            del self.by_id[row.state.request]

    def num_rows(self, num_frames: int) -> int:
        """How many requests were added in the first ``num_frames`` frames."""
        return bisect_left(self._facts["added"], num_frames)

    def tables(self, num_frames: int) -> dict[str, dict[str, ArrayLike]]:
        """``request``: what stands still; ``motion`` and ``place``: what changes, as tracks. Of rows and facts those
        of the first ``num_frames`` frames."""
        num_rows = self.num_rows(num_frames)
        facts = {name: np.asarray(column[:num_rows], dtype=np.int64) for name, column in self._facts.items()}
        facts["reason"] = np.where(facts["ended"] < num_frames, facts["reason"], NEVER)
        for name in ("first_token", "ended"):
            facts[name] = np.where(facts[name] < num_frames, facts[name], NEVER)
        return {
            "request": dict(facts),
            "motion": self._motion.columns(num_rows),
            "place": self._place.columns(num_rows),
        }
