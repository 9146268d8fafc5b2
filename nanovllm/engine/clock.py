"""Time belongs to the clock: a real one that one waits for, or a virtual one that jumps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the start of a run."""

    def now(self) -> float:
        """The time, in seconds since the start."""
        ...

    def wait_until(self, time_s: float) -> None:
        """Return when ``now()`` has reached ``time_s``; at once if it has already."""
        ...


class WallClock:
    """The real time. Starts at 0 when it is made."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def now(self) -> float:
        """Seconds since this clock was made."""
        return time.perf_counter() - self._start_s

    def wait_until(self, time_s: float) -> None:
        """Sleep until ``time_s``."""
        delay_s = time_s - self.now()
        if delay_s > 0:
            time.sleep(delay_s)


class VirtualClock:
    """A time that moves only when it is told to: by a simulated backend, or to the next arrival."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        """The virtual time in seconds."""
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        """Jump to ``time_s``, unless it has passed."""
        self._now_s = max(self._now_s, time_s)

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds (never negative) pass."""
        assert duration_s >= 0, f"time cannot run backwards by {-duration_s} s"
        self._now_s += duration_s
