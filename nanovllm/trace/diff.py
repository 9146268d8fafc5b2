"""Where the decisions of two runs part, in words.

Decisions are all events without their times. Of the headers only policy and options count, for they explain decisions;
backend and model do not: that a simulation decides like the run it simulates is what one wants to see. Nor does what
follows from the options alone: how much of another pool is free, and admissions where only one policy tells of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import msgspec

from nanovllm.trace.events import (
    Admitted,
    AnyEvent,
    BlockEvicted,
    BlocksFreed,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.files.completeness import why_unfinished
from nanovllm.trace.words import counted, describe

_MOST_CLAUSES = 2
_CONSEQUENCES = (BlockEvicted, BlocksFreed, StepFinished)
"""Told only where the traces part at one: they follow from what is told beside them."""


class Difference(msgspec.Struct, frozen=True):
    """How two traces differ. ``str`` of it is the whole message, one fact a line."""

    options: list[str]
    """Options of the headers that differ, each in words."""
    event: int | None
    """Index of the first event that differs, among those that count; None if none does."""
    step: int | None
    """Its step; None if the decisions are the same, or part before the first step."""
    decision: str | None
    """What A did there and what B did, in words."""

    def lines(self) -> list[str]:
        """The whole message, one fact a line."""
        return [*self.options, "the decisions are the same" if self.decision is None else self.decision]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def diff(a: Sequence[AnyEvent], b: Sequence[AnyEvent]) -> Difference | None:
    """The first difference between two traces, called A and B; None if they made the same decisions under the same
    options."""
    options = _differing_options(a, b)
    a, b = _what_counts(a, b), _what_counts(b, a)
    event = _first_difference(a, b)
    if event is None:
        return Difference(options, None, None, None) if options else None
    step = _step_at(a, b, event)
    place = "before the first step" if step is None else f"step {step}"
    return Difference(options, event, step, f"{place}: {_in_words(a, b, event)}")


def without_times(event: AnyEvent) -> AnyEvent:
    """The same event at time 0: what was decided, whenever it was."""
    return msgspec.structs.replace(event, **dict.fromkeys(event.TIME_FIELDS, 0.0)) if event.TIME_FIELDS else event


# ---- finding -------------------------------------------------------------------------------------------------


def _differing_options(a: Sequence[AnyEvent], b: Sequence[AnyEvent]) -> list[str]:
    options_a, options_b = _options(a), _options(b)
    names = [*options_a, *(name for name in options_b if name not in options_a)]
    return [
        f"{name} is {options_a.get(name, 'not told')} in A, {options_b.get(name, 'not told')} in B"
        for name in names
        if options_a.get(name) != options_b.get(name)
    ]


def _options(events: Sequence[AnyEvent]) -> dict[str, object]:
    header = events[0] if events else None
    return {"policy": header.policy, **header.config} if isinstance(header, TraceStarted) else {}


def _what_counts(events: Sequence[AnyEvent], others: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """What both traces would tell if they decided alike."""
    options, other_options = _options(events), _options(others)
    if options.get("policy") != other_options.get("policy") and not any(isinstance(e, Admitted) for e in others):
        events = [event for event in events if not isinstance(event, Admitted)]
    if options.get("num_blocks") != other_options.get("num_blocks"):
        events = [
            msgspec.structs.replace(event, free_blocks=0) if isinstance(event, StepStarted) else event
            for event in events
        ]
    return events


def _first_difference(a: Iterable[AnyEvent], b: Iterable[AnyEvent]) -> int | None:
    for index, (event_a, event_b) in enumerate(zip_longest(a, b)):
        if event_a == event_b or (isinstance(event_a, TraceStarted) and isinstance(event_b, TraceStarted)):
            continue
        if event_a is None or event_b is None or without_times(event_a) != without_times(event_b):
            return index
    return None


def _step_at(a: Sequence[AnyEvent], b: Sequence[AnyEvent], index: int) -> int | None:
    """The step whose events differ from ``index`` on: the open one, else the one that comes next, else the last."""
    last = next((event for event in reversed(a[:index]) if isinstance(event, (StepStarted, StepFinished))), None)
    if isinstance(last, StepStarted):
        return last.step
    coming = [next((e.step for e in events[index:] if isinstance(e, StepStarted)), None) for events in (a, b)]
    if any(step is not None for step in coming):
        return min(step for step in coming if step is not None)
    return None if last is None else last.step


# ---- in words ------------------------------------------------------------------------------------------------


def _in_words(a: Sequence[AnyEvent], b: Sequence[AnyEvent], index: int) -> str:
    if index >= len(a) or index >= len(b):
        return _one_ends(a, b)
    event_a, event_b = a[index], b[index]
    if type(event_a) is type(event_b) and describe(event_a) == describe(event_b):
        return f"both {describe(event_a)}, but {_differing_field(event_a, event_b)}"
    return f"A {_clauses(a, index)}; B {_clauses(b, index)}"


def _one_ends(a: Sequence[AnyEvent], b: Sequence[AnyEvent]) -> str:
    (short, longer), (name, other) = ((a, b), "AB") if len(a) < len(b) else ((b, a), "BA")
    missing = why_unfinished(short)
    how = "" if missing is None else f" (it is incomplete: {missing})"
    return f"{name} ends here, after {counted(len(short), 'event')}{how}; {other} {_clauses(longer, len(short))}"


def _clauses(events: Sequence[AnyEvent], index: int) -> str:
    return " and ".join(map(describe, _telling(events, index)))


def _telling(events: Sequence[AnyEvent], index: int) -> Iterator[AnyEvent]:
    """The event that differs and what was decided next, within its step."""
    yield events[index]
    num_told = 1
    for event in events[index + 1 :]:
        if num_told == _MOST_CLAUSES or isinstance(event, (StepStarted, StepFinished)):
            return
        if not isinstance(event, _CONSEQUENCES):
            yield event
            num_told += 1


def _differing_field(a: AnyEvent, b: AnyEvent) -> str:
    """Where two events of one type differ, down to the element of a list."""
    fields = (name for name in a.__struct_fields__ if name not in a.TIME_FIELDS)
    name = next(name for name in fields if getattr(a, name) != getattr(b, name))
    of_a, of_b = getattr(a, name), getattr(b, name)
    if isinstance(of_a, list) and isinstance(of_b, list):
        if len(of_a) != len(of_b):
            return f"{name} has {len(of_a)} in A, {len(of_b)} in B"
        position = next(i for i, (x, y) in enumerate(zip(of_a, of_b, strict=True)) if x != y)
        if isinstance(a, TokensAppended):
            return f"request {a.requests[position]} got {of_a[position]} in A, {of_b[position]} in B"
        name, of_a, of_b = f"{name}[{position}]", of_a[position], of_b[position]
    return f"{name} is {of_a} in A, {of_b} in B"
