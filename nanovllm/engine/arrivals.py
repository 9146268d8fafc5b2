"""Requests on their way to an engine: some come at a time of their own, others when those they wait for have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

import msgspec

from nanovllm.engine.request import Request
from nanovllm.errors import RequestError, shown
from nanovllm.trace.events import RequestId


@dataclass(slots=True)
class _FollowUp:
    """A request that waits for others."""

    place: int
    request: Request
    num_awaited: int


class Arrivals:
    """The requests of a workload as they arrive. Those that arrive together keep their order.

    One with ``after`` arrives ``delay_s`` after the last of those that it waits for has ended, in whatever way:
    whoever runs them tells by ``note_ended``. It must stand behind them, and before any request that comes later than
    they do. So what has ended by the time at which it is read ended before the others will, and need not be remembered.

    Requests are read up to the next one that comes at a time of its own, no further.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = enumerate(requests)
        # A heap of those that are known to come: all whose wait is over, and the next one with a time of its own.
        self._coming: list[tuple[float, int, Request]] = []
        self._waiting: dict[RequestId, list[_FollowUp]] = {}  # by each request that they wait for
        self._not_ended: set[RequestId] = set()
        self._ends: deque[tuple[RequestId, float]] = deque()  # any thread that takes a turn may tell
        self._read_on()

    @property
    def head(self) -> Request | None:
        """The next one, with the time at which it arrives. None: as far as is known, none comes."""
        if self._ends:
            self._take_in_ends()
        return self._coming[0][2] if self._coming else None

    @property
    def num_awaited(self) -> int:
        """How many requests are waited for."""
        return len(self._waiting)

    def pop_while(self, is_due: Callable[[Request], bool]) -> list[Request]:
        """Take those at the head that are due."""
        due: list[Request] = []
        while (request := self.head) is not None and is_due(request):
            heappop(self._coming)
            due.append(request)
            if not request.after:
                self._read_on()
        return due

    def note_ended(self, request_id: RequestId, time_s: float) -> None:
        """A request has ended: it is finished, refused, failed or aborted. Told in the order of their times."""
        self._ends.append((request_id, time_s))

    def _take_in_ends(self) -> None:
        while self._ends:
            request_id, time_s = self._ends.popleft()
            self._not_ended.discard(request_id)
            for waiting in self._waiting.pop(request_id, ()):
                waiting.num_awaited -= 1
                if waiting.num_awaited == 0:
                    arrival_s = time_s + waiting.request.delay_s
                    request = msgspec.structs.replace(waiting.request, arrival_s=arrival_s)
                    heappush(self._coming, (arrival_s, waiting.place, request))

    def _read_on(self) -> None:
        """Read up to the next request that comes at a time, or before a step, of its own."""
        for place, request in self._requests:
            if request.after:
                self._hold(place, request)
            self._not_ended.add(request.request_id)
            if not request.after:
                moment = request.arrival_s if request.arrival_step is None else request.arrival_step
                heappush(self._coming, (moment, place, request))
                return

    def _hold(self, place: int, request: Request) -> None:
        awaited = self._not_ended.intersection(request.after)
        if not awaited:
            names = ", ".join(map(shown, request.after))
            raise RequestError(
                "nothing_to_wait_for",
                f"request {shown(request.request_id)} waits for {names}, of which nothing is there (any more): it must "
                f"come behind them, and before any request that arrives later than they do",
            )
        follow_up = _FollowUp(place, request, len(awaited))
        for request_id in awaited:
            self._waiting.setdefault(request_id, []).append(follow_up)
