"""The life of each request as a row of phases, and rows packed into lanes, for drawing over time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    Preempted,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
    TokensAppended,
)


class Phase(msgspec.Struct):
    """Part of a request's life, in seconds.

    ``name``: ``waiting`` (also between two chunks), ``prefill`` and ``recompute`` (one chunk each; the latter after a
    preemption), ``decode`` (from the end of the prefill on, whatever steps others have in between), ``preempted``.
    """

    name: str
    start: float
    end: float
    details: dict[str, Any]


class Life(msgspec.Struct):
    """A request from its arrival to its end. Phases follow each other without gap or overlap."""

    request: RequestId
    arrival: float
    prompt_tokens: int
    max_tokens: int
    phases: list[Phase] = []
    output_tokens: int = 0
    num_preemptions: int = 0
    end: float = 0.0
    reason: str = "unfinished"

    def enter(self, name: str, time: float, details: dict[str, Any]) -> None:
        """End the current phase and begin another."""
        self._leave(time)
        self.phases.append(Phase(name, time, time, details))

    def finish(self, time: float, reason: str) -> None:
        """End the current phase and the request."""
        self._leave(time)
        self.end, self.reason = time, reason

    def _leave(self, time: float) -> None:
        """Waiting or decoding that took no time is forgotten."""
        phase = self.phases[-1]
        phase.end = time
        if phase.start == time and phase.name in ("waiting", "decode"):
            self.phases.pop()


class LifeFollower:
    """Takes in events and keeps the lives of all requests."""

    def __init__(self) -> None:
        self._lives: list[Life] = []
        self._living: dict[RequestId, Life] = {}
        self._chunked: list[tuple[Life, str]] = []
        """Requests with a chunk in the current step, and the phase that follows it."""
        self._ended: list[tuple[Life, str]] = []
        """Requests that ended in the current step, and why."""
        self._is_in_step = False
        self._step_start = 0.0
        self._time = 0.0

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, TokensAppended):
            for request in event.requests:
                self._living[request].output_tokens += 1
        elif isinstance(event, StepStarted):
            self._is_in_step = True
            self._step_start = self._time = event.time
        elif isinstance(event, StepFinished):
            self._finish_step(event)
        elif isinstance(event, ChunkScheduled):
            self._schedule_chunk(event)
        elif isinstance(event, Preempted):
            self._preempt(event)
        elif isinstance(event, RequestAdded):
            self._add(event)
        elif isinstance(event, RequestFinished):
            self._finish(event)

    def result(self) -> list[Life]:
        """All lives, in the order in which the requests were added; unfinished ones go to the last known time."""
        for life, _ in self._ended:
            life.finish(self._time, "unfinished")
        for life in self._living.values():
            life.finish(self._time, "unfinished")
        return self._lives

    def _add(self, event: RequestAdded) -> None:
        self._time = event.time
        arrival = min(event.arrival, event.time)  # also where a trace breaks the law of arrival
        life = Life(event.request, arrival, event.prompt_tokens, event.max_tokens)
        life.phases.append(Phase("waiting", arrival, arrival, {}))
        self._lives.append(life)
        self._living[event.request] = life

    def _schedule_chunk(self, event: ChunkScheduled) -> None:
        life = self._living[event.request]
        details = {"start": event.start, "tokens": event.tokens, "remaining": event.remaining}
        life.enter("recompute" if life.num_preemptions else "prefill", self._step_start, details)
        self._chunked.append((life, "waiting" if event.remaining else "decode"))

    def _preempt(self, event: Preempted) -> None:
        life = self._living[event.request]
        life.num_preemptions += 1
        details = {"for": event.for_request, "tokens_lost": event.tokens_lost, "count": event.count}
        life.enter("preempted", self._step_start, details)

    def _finish(self, event: RequestFinished) -> None:
        life = self._living.pop(event.request)
        if self._is_in_step:
            self._ended.append((life, event.reason))
        else:
            self._time = event.time
            life.finish(event.time, event.reason)

    def _finish_step(self, event: StepFinished) -> None:
        self._is_in_step = False
        self._time = event.time
        for life, phase in self._chunked:
            life.enter(phase, event.time, {})
        for life, reason in self._ended:
            life.finish(event.time, reason)
        self._chunked, self._ended = [], []


def pack(lives: Iterable[Life]) -> Iterator[tuple[int, Life]]:
    """Give each request a lane, in order of arrival: the lowest that is free, so there are as many lanes as requests
    are there at once."""
    num_lanes = 0
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for life in sorted(lives, key=lambda life: life.arrival):
        while busy and busy[0][0] <= life.arrival:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, num_lanes = num_lanes, num_lanes + 1
        heapq.heappush(busy, (life.end, lane))
        yield lane, life
