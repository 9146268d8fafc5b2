"""Parts of a trace: some of its steps, or what concerns one request."""

from __future__ import annotations

import re
from itertools import chain

from nanovllm.errors import ConfigError, UserError
from nanovllm.trace.by_step import by_step
from nanovllm.trace.events import AnyEvent, DecodeScheduled, StepFinished, StepStarted, TokensAppended


def parse_steps(text: str) -> tuple[int, int | None]:
    """``3:7`` as the first and the last step, None for no end; ``3`` is one step. Raises ``ConfigError``."""
    first, colon, last = text.partition(":")
    numbers = [part for part in (first, last) if part]
    if not numbers or not all(re.fullmatch("[0-9]{1,18}", part) for part in numbers):
        raise ConfigError("steps", text, "a step such as 3, or the first and the last of several such as 3:7")
    low = int(first or 0)
    high = (int(last) if last else None) if colon else low
    if high is not None and high < low:
        raise ConfigError("steps", text, "the first step, then the last")
    return low, high


def of_steps(events: list[AnyEvent], first: int, last: int | None) -> list[AnyEvent]:
    """The header and the events of these steps. Raises ``UserError`` if there are none."""
    groups = list(by_step(events))
    chosen = [group for step, group in groups if first <= step and (last is None or step <= last)]
    if not chosen:
        there_are = f"steps {groups[0][0]} to {groups[-1][0]}" if groups else "none"
        raise UserError(f"there is no such step: the trace has {there_are}")
    return [events[0], *chain.from_iterable(chosen)]


def of_request(events: list[AnyEvent], request: str) -> list[AnyEvent]:
    """The header, and of each step that concerns a request what concerns it. Raises ``UserError`` if nothing does."""
    chosen = [events[0]]
    for _, group in by_step(events):
        narrowed = [part for event in group if (part := _narrow(event, request)) is not None]
        if any(not isinstance(event, (StepStarted, StepFinished)) for event in narrowed):
            chosen += narrowed
    if len(chosen) == 1:
        raise UserError(f"nothing in the trace concerns a request {request!r}")
    return chosen


def _narrow(event: AnyEvent, request: str) -> AnyEvent | None:
    """What of an event concerns the request, or the step that it is in; None if nothing does."""
    if isinstance(event, (StepStarted, StepFinished)):
        return event
    if isinstance(event, DecodeScheduled):
        return DecodeScheduled(mine) if (mine := [name for name in event.requests if str(name) == request]) else None
    if isinstance(event, TokensAppended):
        pairs = [pair for pair in zip(event.requests, event.tokens, strict=False) if str(pair[0]) == request]
        return TokensAppended([name for name, _ in pairs], [token for _, token in pairs]) if pairs else None
    names = (getattr(event, "request", None), getattr(event, "for_request", None))
    return event if request in map(str, names) else None
