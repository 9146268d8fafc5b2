"""How much a view may take of the time that a run needs."""

from __future__ import annotations

import time

from viz.live.source import Source

SHARE, SHARE_OF_A_FAST_RUN = 0.03, 0.01
"""Of the time while a run goes on: in CPython the run waits while the view works, on any number of processors. A run
that the view can't follow anyway computes nothing but decisions, and pays for all of it."""
MANY_PENDING_EVENTS = 1000
"""With more that wait, a run is too fast to be followed."""
REFRESH_INTERVAL_S = 0.1
_LONGEST_REST_S = 0.5
_WORK_S, _WORK_ALONE_S = 0.0015, 0.04
"""Longest stretch of taking in events before keys are looked at and the screen is drawn, beside a run and without."""


class Pace:
    """Measures the view's work, and says how long it has to rest afterwards.

    By the clock, not by the processor's time: a view that is kept waiting in the middle of its work, because the
    machine is busy, keeps the run waiting too.

    Beyond ``most_pending`` events that wait, it needs no rest: so they become no more, and the run is slowed.
    """

    def __init__(self, source: Source, most_pending: int | None = None) -> None:
        self._source = source
        self._most_pending = most_pending
        self._start_s = time.perf_counter()

    @property
    def _is_limited(self) -> bool:
        is_behind = self._most_pending is not None and self._source.num_pending > self._most_pending
        return self._source.is_running and not is_behind

    def begin(self) -> None:
        """Work begins."""
        self._start_s = time.perf_counter()

    @property
    def has_time(self) -> bool:
        """Whether work may go on."""
        limit_s = _WORK_S if self._is_limited else _WORK_ALONE_S
        return time.perf_counter() - self._start_s < limit_s

    def rest_s(self) -> float:
        """So long no more work should be done, keys excepted."""
        if not self._is_limited:
            return 0.0
        share = SHARE if self._source.num_pending < MANY_PENDING_EVENTS else SHARE_OF_A_FAST_RUN
        return min(_LONGEST_REST_S, (time.perf_counter() - self._start_s) * (1 / share - 1))
