"""Trace files that somebody has damaged: lines lost, doubled, cut, in another order, or with other values in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.trace.runs import preempting_run

LINES = [msgspec.json.encode(event) for event in preempting_run()]
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 10**6, 10**12, 2**64, 10**30, -0.5, 1e300, "", "x", "eos", "\x1b[2J\n"),
    *([], [0], [-1], [10**9], ["x"], [[]], {}, {"a": 1}),
]


def wrong_values() -> Iterator[bytes]:
    """Files in which one value is another: each field of each kind of event, and each option, has all ``VALUES``."""
    seen = set()
    for place, line in enumerate(LINES):
        fields = msgspec.json.decode(line)
        for name in fields:
            if (fields["type"], name) not in seen:
                seen.add((fields["type"], name))
                yield from (_with_line(place, {**fields, name: value}) for value in VALUES)
    header = msgspec.json.decode(LINES[0])
    for name in header["config"]:
        yield from (_with_line(0, {**header, "config": {**header["config"], name: value}}) for value in VALUES)


def _with_line(place: int, fields: dict[str, Any]) -> bytes:
    return b"\n".join([*LINES[:place], msgspec.json.encode(fields), *LINES[place + 1 :], b""])


@st.composite
def damaged_traces(draw: st.DrawFn) -> bytes:
    """The bytes of a file with one to three damages."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 3))):
        here, there = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        damage = draw(st.sampled_from(["swap", "double", "lose", "cut", "value", "value", "value", "option"]))
        if damage == "swap":
            lines[here], lines[there] = lines[there], lines[here]
        elif damage == "double":
            lines.insert(there, lines[here])
        elif damage == "lose" and len(lines) > 1:
            del lines[here]
        elif damage == "cut":
            lines[here:] = [lines[here][: draw(st.integers(1, len(lines[here])))]]
        elif damage == "value":
            lines[here] = _with_another_value(draw, lines[here])
        elif damage == "option":
            lines = [_with_another_option(draw, line) if b'"config"' in line else line for line in lines]
    return b"\n".join(lines)


def _with_another_value(draw: st.DrawFn, line: bytes) -> bytes:
    try:
        fields = msgspec.json.decode(line)
    except msgspec.DecodeError:  # it was cut before
        return line
    return msgspec.json.encode({**fields, draw(st.sampled_from(sorted(fields))): draw(st.sampled_from(VALUES))})


def _with_another_option(draw: st.DrawFn, line: bytes) -> bytes:
    try:
        header = msgspec.json.decode(line)
        name = draw(st.sampled_from(sorted(header["config"])))
    except (msgspec.DecodeError, TypeError):  # it was damaged before
        return line
    return msgspec.json.encode({**header, "config": {**header["config"], name: draw(st.sampled_from(VALUES))}})
