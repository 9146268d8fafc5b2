"""What is wrong with a line of a trace, in words."""

from __future__ import annotations

from typing import get_args

import msgspec

from nanovllm.trace.events import SCHEMA_VERSION, AnyEvent, TraceStarted

_EVENT_TYPES = {event_type.__struct_config__.tag: event_type for event_type in get_args(AnyEvent)}
A_TRACE_BEGINS = "a trace begins with a line of type trace_started"
CUT_HEADER = "was cut within its header, the first line: no event is left"
HEADER_START = b'{"type":"trace_started"'


class NoEventError(Exception):
    """A line that is JSON but not the event that must stand there."""


class _Typed(msgspec.Struct):
    type: str


class _Versioned(msgspec.Struct):
    type: str
    schema: int


def check_header(line: bytes) -> None:
    """Raise ``NoEventError`` for a header of another schema. Looks at type and schema alone: there, other fields may
    follow."""
    if msgspec.json.decode(line, type=_Typed).type != "trace_started":
        return
    schema = msgspec.json.decode(line, type=_Versioned).schema
    if schema > SCHEMA_VERSION:
        raise NoEventError(
            f"the trace has schema {schema}, this version reads schemas up to {SCHEMA_VERSION}: "
            "read it with a newer version"
        )
    if schema < 1:
        raise NoEventError(f"there is no schema {schema}: this version reads schemas 1 to {SCHEMA_VERSION}")


def misplaced(event: AnyEvent) -> str:
    """What is wrong with a header behind the first line, or another event in it."""
    if type(event) is TraceStarted:
        return "a second trace_started: a file holds one trace"
    return f"the first event is {type(event).__struct_config__.tag}: {A_TRACE_BEGINS}"


def why_no_json(line: bytes) -> str | None:
    """What keeps a line from being JSON; None if it is. (Whoever decodes an event may stop at a wrong value, and never
    see that the rest is missing.)"""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None


def explain(line: bytes, error: Exception, is_first: bool) -> str:
    """What is wrong with a line, in words, and what is allowed there."""
    if isinstance(error, NoEventError):
        return str(error)
    if is_first and line.startswith(b"nvtrace "):
        return "is a compact trace, whose name ends in .nvtrace: it needs no other compression"
    if (problem := why_no_json(line)) is not None:
        return f"is not JSON ({problem}): {A_TRACE_BEGINS if is_first else 'each line is an event'}"
    try:
        name = msgspec.json.decode(line, type=_Typed).type
    except msgspec.ValidationError:
        return f"is no event: {A_TRACE_BEGINS if is_first else 'each line is an object with a type'}"
    if name not in _EVENT_TYPES:
        known = ", ".join(sorted(_EVENT_TYPES))
        return f"{name!r} is no type of event: {A_TRACE_BEGINS if is_first else f'the types are {known}'}"
    fields = ", ".join(_EVENT_TYPES[name].__struct_fields__)
    return f"is no {name}: {error} (its fields are {fields})"
