"""Where a view's events come from: a run that is going on, or a trace."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent, StepFinished
from nanovllm.trace.jsonl import Trace, iter_events


class Source(Protocol):
    """Hands out events in order."""

    name: object
    """What errors call it."""
    problem: str | None
    """Why the events end before the run did, if they do."""

    newest_step: int | None
    """How far the run has come, if that is more than its events tell."""

    @property
    def is_growing(self) -> bool:
        """Whether there are, or will be, more events than were taken."""

    @property
    def is_running(self) -> bool:
        """Whether a run goes on in this process that must not be slowed down."""

    @property
    def num_pending(self) -> int:
        """How many events could be taken now."""

    def take(self, most: int) -> list[AnyEvent]:
        """The next events, at most so many; none, if there are none yet."""


class RunSource:
    """A run in another thread: hand ``emit`` to the engine. All it does is to append to a queue.

    Of a run that decides faster than its view follows, ``most_pending`` events wait, or a few more; what comes then is
    not kept, and ``problem`` says so: keeping an event costs a fast simulator more than making it. None: no limit.
    """

    name: object = "run"

    def __init__(self, most_pending: int | None = None) -> None:
        self.problem: str | None = None
        self.is_running = True
        self.newest_step: int | None = None
        """How far the run has come, once its events are no longer kept."""
        self._most_pending = most_pending
        self._queue: deque[AnyEvent] = deque()
        self._is_open = True

    def emit(self, event: AnyEvent) -> None:
        """Take in an event of the run."""
        if self._is_open:
            self._queue.append(event)
        elif type(event) is StepFinished:
            self.newest_step = event.step

    @property
    def is_growing(self) -> bool:
        """See ``Source``."""
        return self.is_running or bool(self._queue)

    @property
    def num_pending(self) -> int:
        """See ``Source``."""
        return len(self._queue)

    def take(self, most: int) -> list[AnyEvent]:
        """See ``Source``."""
        if self._is_open and self._most_pending is not None and len(self._queue) > self._most_pending:
            self._is_open = False
            self.problem = "the run was too fast to be followed from here on"
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def discard(self) -> None:
        """Keep nothing any more: nobody will take it."""
        self._is_open = False
        self._queue.clear()

    def finish(self) -> None:
        """The run is over: nothing will be emitted any more."""
        self.is_running = False


class TraceSource:
    """A trace that was read."""

    is_running = False
    newest_step: int | None = None

    def __init__(self, trace: Trace) -> None:
        self.name: object = trace.path
        self.problem = None if trace.problem is None else f"the trace is incomplete: {trace.problem}"
        self._events: Sequence[AnyEvent] = trace.events
        self._num_taken = 0

    @property
    def is_growing(self) -> bool:
        """See ``Source``."""
        return self.num_pending > 0

    @property
    def num_pending(self) -> int:
        """See ``Source``."""
        return len(self._events) - self._num_taken

    def take(self, most: int) -> list[AnyEvent]:
        """See ``Source``."""
        events = list(self._events[self._num_taken : self._num_taken + most])
        self._num_taken += len(events)
        return events


class GrowingTraceSource:
    """A trace file that is being written: whenever it has grown, it is read again from where it was.

    Reading starts anew each time, so that one reader serves all; it waits ten times as long as it takes.
    """

    is_running = False
    newest_step: int | None = None
    problem: str | None = None
    _LEAST_PAUSE_S = 0.2
    _PAUSE_PER_READING = 10

    def __init__(self, path: str | Path) -> None:
        self.name: object = str(path)
        self._path = Path(path)
        self._pending: deque[AnyEvent] = deque()
        self._num_read = 0
        self._num_bytes = -1
        self._next_look_s = 0.0

    @property
    def is_growing(self) -> bool:
        """See ``Source``."""
        return self.problem is None

    @property
    def num_pending(self) -> int:
        """See ``Source``."""
        self._look()
        return len(self._pending)

    def take(self, most: int) -> list[AnyEvent]:
        """See ``Source``."""
        self._look()
        return [self._pending.popleft() for _ in range(min(most, len(self._pending)))]

    def _look(self) -> None:
        start_s = time.monotonic()
        if self._pending or self.problem is not None or start_s < self._next_look_s:
            return
        try:
            num_bytes = self._path.stat().st_size
            if num_bytes != self._num_bytes:
                self._pending.extend(islice(iter_events(self._path), self._num_read, None))
                self._num_read += len(self._pending)
                self._num_bytes = num_bytes
        except (TraceError, OSError) as error:
            self.problem = str(error)
        taken_s = time.monotonic() - start_s
        self._next_look_s = start_s + max(self._LEAST_PAUSE_S, self._PAUSE_PER_READING * taken_s)
