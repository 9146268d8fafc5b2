"""Walks through a step that preempts, event by event, for the figures that show how its decisions are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nanovllm.errors import UserError
from nanovllm.trace.events import AnyEvent, Preempted, StepStarted
from nanovllm.trace.replay import Replay
from nanovllm.trace.timeline import Timeline
from viz.figures.axis import StepRange
from viz.figures.history import Source, events_of


def walk_preempting_step(source: Source, step: int | None) -> tuple[int, Iterator[tuple[AnyEvent, Replay]]]:
    """The number of a step that preempts, and its events, each with the state right after it.

    ``step`` None: see ``first_preempting_step``. Raises ``UserError`` if this one, or none, does.
    """
    name, events = events_of(source)
    step = first_preempting_step(source, (0, None) if step is None else (step, step))
    return step, _states(Timeline(events, name), step)


def first_preempting_step(source: Source, steps: StepRange) -> int:
    """The first step in a range that preempts one request for another, or else the first in which one gives way to
    nobody. Raises ``UserError`` if there is neither, naming some steps that preempt."""
    name, events = events_of(source)
    preempting = _preempting_steps(events)
    first, last = steps
    chosen = [step for step in preempting if first <= step and (last is None or step <= last)]
    if chosen:
        return next((step for step in chosen if preempting[step]), chosen[0])
    if not preempting:
        raise UserError(f"{name}: no step preempts a request")
    asked = f"step {first} preempts no request" if first == last else "none of the steps asked for preempts a request"
    raise UserError(f"{name}: {asked}; those that do: {_some_of(list(preempting))}")


def _preempting_steps(events: Sequence[AnyEvent]) -> dict[int, bool]:
    """The steps that preempt, and whether one request is preempted for another."""
    step = -1
    steps: dict[int, bool] = {}
    for event in events:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, Preempted):
            steps[step] = steps.get(step, False) or event.request != event.for_request
    return steps


def _some_of(steps: list[int], limit: int = 8) -> str:
    more = f" and {len(steps) - limit} more" if len(steps) > limit else ""
    return ", ".join(map(str, steps[:limit])) + more


def _states(timeline: Timeline, step: int) -> Iterator[tuple[AnyEvent, Replay]]:
    indices = timeline.range_of(step)
    replay = timeline.at_event(indices.start - 1)
    for index in indices:
        event = timeline.events[index]
        replay.apply(event)
        yield event, replay
