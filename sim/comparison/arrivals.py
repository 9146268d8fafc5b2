"""How the requests of a recorded run came: each at its time, or before a certain step.

A trace tells when a request came and when it was handed over, not what its workload said. A request that came by step
was there in the moment in which the engine looked; one that came at a time waited until it did, unless the engine was
idle and waited for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nanovllm.trace.events import (
    AnyEvent,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
    TraceStarted,
)


class Arrival(NamedTuple):
    """How a request comes; one of the two is None."""

    arrival: float | None
    """Seconds from the start."""
    arrival_step: int | None


def read_arrivals(events: Sequence[AnyEvent], *, by_step: bool = False) -> dict[RequestId, Arrival]:
    """How the requests of a run came. ``by_step``: before which step they were handed over, however they came."""
    added = [event for event in events if isinstance(event, RequestAdded)]
    steps = _steps_of_hand_over(events)
    if by_step:
        return {event.request: Arrival(None, steps[event.request]) for event in added}
    if not came_by_step(events):
        return {event.request: Arrival(event.arrival, None) for event in added}
    early = _waiting_from_the_start(events)
    return {
        event.request: Arrival(0.0, None) if event.request in early else Arrival(None, steps[event.request])
        for event in added
    }


def came_by_step(events: Sequence[AnyEvent]) -> bool:
    """Whether the requests of a run came by step, those that were there from the start aside. True where it makes no
    difference.

    Of a real engine that looked ahead, the trace tells when a request was handed over only if nothing was in flight:
    without such a request, or a jump of the step numbers, by time is the answer.
    """
    header = events[0] if events and isinstance(events[0], TraceStarted) else None
    looks_ahead = header is not None and bool(header.facts.get("lookahead"))
    if looks_ahead:
        return _has_jump_of_steps(events) or _was_left_at_the_start(events) or _came_while_others_were_added(events)
    is_virtual = header is not None and header.backend == "simulated"
    return not _has_waited(events) and not (is_virtual and _was_waited_for(events))


def _steps_of_hand_over(events: Iterable[AnyEvent]) -> dict[RequestId, int]:
    """Step numbers jump where an idle engine goes on to a request that comes by step."""
    steps: dict[RequestId, int] = {}
    handed_over: list[RequestId] = []
    next_step = 0
    for event in events:
        if isinstance(event, RequestAdded):
            handed_over.append(event.request)
        elif isinstance(event, StepStarted):
            steps |= dict.fromkeys(handed_over, event.step)
            handed_over, next_step = [], event.step + 1
    return steps | dict.fromkeys(handed_over, next_step)


def _waiting_from_the_start(events: Iterable[AnyEvent]) -> set[RequestId]:
    """The requests that came together with the first one, and waited while others were handed over."""
    start_s, names = None, set()
    for event in events:
        if isinstance(event, StepStarted):
            break
        if isinstance(event, RequestAdded):
            start_s = event.arrival if start_s is None else start_s
            if start_s == event.arrival < event.time:
                names.add(event.request)
    return names


# ---- what gives away how requests came -------------------------------------------------------------------------


def _has_waited(events: Sequence[AnyEvent]) -> bool:
    """Whether a request waited for a step to end."""
    early = _waiting_from_the_start(events)
    added = (event for event in events if isinstance(event, RequestAdded))
    return any(event.arrival < event.time and event.request not in early for event in added)


def _was_waited_for(events: Iterable[AnyEvent]) -> bool:
    """Whether the clock, a virtual one, jumped to a request when nothing was left to do."""
    live: set[RequestId] = set()
    end_s: float | None = None  # it may have jumped to the first one, with which all begins
    for event in events:
        if isinstance(event, RequestAdded):
            if not live and end_s is not None and event.arrival > end_s:
                return True
            live.add(event.request)
        elif isinstance(event, RequestFinished):
            live.discard(event.request)
        elif isinstance(event, StepFinished):
            end_s = event.time
    return False


def _has_jump_of_steps(events: Iterable[AnyEvent]) -> bool:
    steps = [event.step for event in events if isinstance(event, StepStarted)]
    return bool(steps) and steps != list(range(len(steps)))


def _was_left_at_the_start(events: Iterable[AnyEvent]) -> bool:
    """Whether a request came in the moment of the first ones, but behind a step: where it takes no time to submit one,
    the engine looked again in that moment."""
    start_s = submitted_s = None
    started_s = 0.0
    for event in events:
        if isinstance(event, RequestAdded):
            start_s = event.arrival if start_s is None else start_s
            if event.arrival == start_s == submitted_s:
                return True
        elif isinstance(event, StepStarted):
            started_s = event.time
        elif isinstance(event, StepFinished) and submitted_s is None:
            submitted_s = started_s + (event.host or 0.0)
    return False


def _came_while_others_were_added(events: Iterable[AnyEvent]) -> bool:
    """Whether a request came later than the engine looked, and was handed over all the same.

    When it looked can be told if the first of those that were handed over together came in that very moment: when
    nothing was in flight, at the ``time`` that is told of it; behind other steps, when the step before the last one
    was over; behind a first one, when that was submitted.
    """
    first: RequestAdded | None = None
    ends_s, started_s = (0.0, 0.0), 0.0
    submitted_s: float | None = None
    for event in events:
        if isinstance(event, RequestAdded):
            if first is None:
                first = event
            elif event.arrival > first.arrival and first.arrival in (first.time, ends_s[0], submitted_s):
                return True
        elif isinstance(event, StepStarted):
            first, started_s = None, event.time
        elif isinstance(event, StepFinished):
            ends_s = ends_s[1], event.time
            submitted_s = None if event.host is None else started_s + event.host
    return False
