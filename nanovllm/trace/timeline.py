"""Any moment of a trace, forwards and backwards.

One pass over the events leaves a snapshot every so many of them, at most ``_NUM_SNAPSHOTS``. To go somewhere, the
snapshot before it is restored and the events from there are replayed; on the way finer snapshots are left, so that
going step by step through the same region, backwards too, replays a few steps each time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from nanovllm.trace.events import AnyEvent, StepFinished, StepStarted, TraceStarted
from nanovllm.trace.replay import Replay
from nanovllm.trace.state.snapshot import restore, take

_NUM_SNAPSHOTS = 256
_NUM_FINE_SNAPSHOTS = 16
_SHORTEST_STRIDE_EVENTS = 256


class Timeline:
    """A trace to move about in. Each ``Replay`` it gives is the caller's own.

    The events of a step are those after the step before it, up to its ``StepFinished``: what arrives or is aborted
    before a step belongs to it. Whatever follows the last step belongs to that one.
    """

    def __init__(self, events: Sequence[AnyEvent], source: object = "events") -> None:
        """Raises ``TraceError`` where the events contradict each other; ``source`` is what it calls them."""
        self.events = events
        self.steps: list[int] = []
        """The numbers of all steps, in order. Some may be missing: the engine skips steps when it waits for one."""
        self._source = source
        self._ends: list[int] = []
        stride = max(_SHORTEST_STRIDE_EVENTS, -(-len(events) // _NUM_SNAPSHOTS))
        self._fine_stride = stride // _NUM_FINE_SNAPSHOTS
        self._stride = self._fine_stride * _NUM_FINE_SNAPSHOTS
        self._segment = 0
        self._fine_snapshots: dict[int, bytes] = {}
        self._snapshots: list[bytes] = []
        self._finished = self._replay_all().finished

    def _replay_all(self) -> Replay:
        replay = Replay(self._source)
        for index, event in enumerate(self.events):
            if index % self._stride == 0:
                self._snapshots.append(take(replay))
            replay.apply(event)
            if isinstance(event, StepStarted):
                self.steps.append(event.step)
            elif isinstance(event, StepFinished):
                self._ends.append(index + 1)
        if self.steps:
            self._ends[len(self.steps) - 1 :] = [len(self.events)]
        return replay

    def at(self, step: int) -> Replay:
        """The state at the end of a step. For a number that was skipped: of the step before it; for one before the
        first step: at the start of the trace; for one after the last: at its end."""
        if not self.steps:
            return self.at_event(len(self.events) - 1)
        position = bisect_right(self.steps, step) - 1
        return self.at_event(self._ends[position] - 1 if position >= 0 else 0)

    def at_event(self, index: int) -> Replay:
        """The state right after event ``index``."""
        if not 0 <= index < len(self.events):
            raise IndexError(f"there is no event {index}: the trace has {len(self.events)}")
        num_events = index + 1
        segment = min(num_events // self._stride, len(self._snapshots) - 1)
        if segment != self._segment:
            self._segment, self._fine_snapshots = segment, {}
        near = max((n for n in self._fine_snapshots if n <= num_events), default=None)
        snapshot = self._snapshots[segment] if near is None else self._fine_snapshots[near]
        return self._replay_to(num_events, snapshot)

    def _replay_to(self, num_events: int, snapshot: bytes) -> Replay:
        header = self.events[0]
        assert isinstance(header, TraceStarted), "the replay of all events has seen to that"
        replay = restore(snapshot, header, self._finished, self._source)
        for event in self.events[replay.num_events : num_events]:
            replay.apply(event)
            if replay.num_events % self._fine_stride == 0:
                self._fine_snapshots[replay.num_events] = take(replay)
        return replay

    def range_of(self, step: int) -> range:
        """Where the events of a step stand; empty for a number that was skipped."""
        position = bisect_right(self.steps, step) - 1
        if position < 0 or self.steps[position] != step:
            return range(0)
        return range(self._ends[position - 1] if position else 1, self._ends[position])

    def events_of(self, step: int) -> Sequence[AnyEvent]:
        """The events of a step, in order."""
        indices = self.range_of(step)
        return self.events[indices.start : indices.stop]
