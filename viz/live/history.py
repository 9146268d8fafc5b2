"""What a run has done so far: grows while it goes on, can be looked up at any frame, and forgets what is too old.

``nanovllm.trace.timeline`` is for a trace that is whole; both restore the same snapshots.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent, RequestId, TraceStarted
from nanovllm.trace.replay import Replay
from nanovllm.trace.state.snapshot import restore, take
from viz.live.follower import Follower, Landmark, Tally

CONTEXT_FRAMES = 64
"""So many frames are told of: where the screen stands, and those before."""
_SHORTEST_SEGMENT_EVENTS = 512
_BLOCKS_PER_EVENT = 4
"""A snapshot costs as much as a few hundred events, and more for a large pool: segments grow with it."""
_FORGOTTEN_SHARE = 8
"""So that forgetting costs little, an eighth of all is forgotten at once."""


@dataclass(frozen=True)
class _Segment:
    """Events from the start of a frame on, and how things stood before them."""

    first_event: int
    first_frame: int
    snapshot: bytes
    hits: dict[RequestId, int]
    holds: dict[RequestId, str]
    tally: Tally
    events: list[AnyEvent] = field(default_factory=list)


class History:
    """The events of a run, and its state at any frame. ``max_events``: of more, the oldest are forgotten."""

    def __init__(self, source: object = "events", max_events: int | None = None) -> None:
        self.first = 0
        """The oldest frame that is remembered."""
        self.problem: str | None = None
        """Why no more events are taken in: they contradict each other. Set once."""
        self.newest = Follower(Replay(source))
        self.num_events = 0
        """Taken in so far, forgotten ones included."""
        self._source = source
        self._max_events = max_events
        self._segments: list[_Segment] = []
        self._ends: list[int] = []
        """Of each frame from ``first`` on that is over: the number of events up to its end."""
        self._tallies: list[Tally] = []
        self._landmarks: list[Landmark] = []
        self._past: Follower | None = None

    @property
    def last(self) -> int:
        """The newest frame; -1 if there is none."""
        return self.newest.frame

    @property
    def header(self) -> TraceStarted | None:
        """How the run was started; None before its first event."""
        return self.newest.replay.header

    # ---- growing -----------------------------------------------------------------------------------------------------

    def append(self, event: AnyEvent) -> None:
        """Take in the next event; none after one that contradicts those before it."""
        if self.problem is not None:
            return
        if not self.newest.is_frame_open:
            self._begin_frame()
        segment = self._segments[-1]
        segment.events.append(event)
        try:
            self.newest.apply(event)
        except TraceError as error:
            segment.events.pop()
            self.problem = f"the trace contradicts itself: {error}"
            before = self._segment_of(max(self.first, segment.first_frame - CONTEXT_FRAMES))
            self.newest = self._restore(before, self.num_events)
            return
        self.num_events += 1
        if not self.newest.is_frame_open:
            self._end_frame()

    def _begin_frame(self) -> None:
        num_blocks = self.newest.replay.pool.num_blocks
        enough = max(_SHORTEST_SEGMENT_EVENTS, num_blocks // _BLOCKS_PER_EVENT)
        if self._segments and len(self._segments[-1].events) < enough:
            return
        newest = self.newest
        newest.replay.finished.clear()  # they are not shown, and would be many
        hits, holds = dict(newest.narrator.hits), dict(newest.narrator.holds)
        snapshot = take(newest.replay)
        self._segments.append(_Segment(self.num_events, newest.frame + 1, snapshot, hits, holds, newest.tally))
        if self._max_events is not None and self.num_events - self._segments[0].first_event > self._max_events:
            self._forget(self._max_events // _FORGOTTEN_SHARE)

    def _end_frame(self) -> None:
        self._ends.append(self.num_events)
        self._tallies.append(self.newest.tally)
        self._landmarks.append(self.newest.landmarks)

    def _forget(self, num_events: int) -> None:
        oldest = self._segments[0].first_event + num_events
        num_segments = bisect_right(self._segments, oldest, key=lambda segment: segment.first_event)
        del self._segments[: min(num_segments, len(self._segments) - 1)]
        num_frames = self._segments[0].first_frame - self.first
        del self._ends[:num_frames]
        del self._tallies[:num_frames]
        del self._landmarks[:num_frames]
        self.first += num_frames

    # ---- looking up --------------------------------------------------------------------------------------------------

    def at(self, frame: int) -> Follower:
        """The state at the end of a frame, or as far as it has come. To be read, and used up before the next call."""
        assert self.first <= frame <= self.last, f"frame {frame} is not one of {self.first} to {self.last}"
        if frame == self.last:
            return self.newest
        end = self._ends[frame - self.first]
        segment = self._segment_of(max(self.first, frame - CONTEXT_FRAMES))
        past = self._past
        if past is None or not segment.first_event <= past.replay.num_events <= end:
            past = self._restore(segment, segment.first_event)
        self._advance(past, end)
        self._past = past
        return past

    def tally(self, frame: int) -> Tally:
        """What was counted up to the end of a frame."""
        return self.newest.tally if frame == self.last else self._tallies[frame - self.first]

    def frame_before(self, frame: int, duration_s: float) -> int | None:
        """The last frame that ended at least so long before this one; the oldest if none did, None if this is it."""
        if frame <= self.first:
            return None
        time_s = self.tally(frame).time_s - duration_s
        position = bisect_right(self._tallies, time_s, hi=frame - self.first, key=lambda tally: tally.time_s)
        return self.first + max(0, position - 1)

    def find(self, landmark: Landmark, frame: int, direction: int) -> int | None:
        """The nearest frame after (``direction`` 1) or before (-1) this one in which something happened; or None."""
        end = self.last + 1 if direction > 0 else self.first - 1
        frames = range(frame + direction, end, direction)
        return next((candidate for candidate in frames if landmark in self._landmarks_of(candidate)), None)

    def _landmarks_of(self, frame: int) -> Landmark:
        return self.newest.landmarks if frame == self.last else self._landmarks[frame - self.first]

    def _segment_of(self, frame: int) -> _Segment:
        position = bisect_right(self._segments, frame, key=lambda segment: segment.first_frame)
        return self._segments[position - 1]

    def _restore(self, segment: _Segment, num_events: int) -> Follower:
        header = self.header if segment.first_event else None
        replay = restore(segment.snapshot, header, [], self._source) if header else Replay(self._source)
        follower = Follower(
            replay, frame=segment.first_frame - 1, hits=segment.hits, holds=segment.holds, tally=segment.tally
        )
        self._advance(follower, num_events)
        return follower

    def _advance(self, follower: Follower, num_events: int) -> None:
        position = bisect_right(self._segments, follower.replay.num_events, key=lambda segment: segment.first_event) - 1
        while follower.replay.num_events < num_events:
            segment = self._segments[position]
            first = follower.replay.num_events - segment.first_event
            for event in segment.events[first : num_events - segment.first_event]:
                follower.apply(event)
            position += 1
