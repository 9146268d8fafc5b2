"""A trace, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nanovllm.trace.events import AnyEvent, StepFinished, StepStarted, TraceStarted


def by_step(events: Iterable[AnyEvent]) -> Iterator[tuple[int, list[AnyEvent]]]:
    """The events of each step, in order, without the header.

    What comes between two steps belongs to the later one. What follows the last step comes under its number again,
    and a trace without any step under 0.
    """
    step: int = 0
    group: list[AnyEvent] = []
    for event in events:
        if isinstance(event, TraceStarted):
            continue
        group.append(event)
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, StepFinished):
            yield step, group
            group = []
    if group:
        yield step, group
