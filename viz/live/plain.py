"""A run as plain lines, for pipes and files: what ``nanovllm trace show`` prints, as it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TextIO

from nanovllm.trace.events import AnyEvent
from nanovllm.trace.text import to_text
from viz.live.pace import REFRESH_INTERVAL_S, Pace
from viz.live.source import Source

_BATCH_EVENTS = 64
_MOST_PENDING_EVENTS = 200_000
"""No line is left out: of a run that is so far ahead, memory is bounded by slowing it."""


def print_lines(source: Source, stream: TextIO, wait: Callable[[float], bool]) -> None:
    """Write a line or a few for each step, until the source ends or ``wait``, which sleeps, says that it is enough."""
    for line in to_text(_events(source, stream, wait)):
        stream.write(line + "\n")
    stream.flush()


def _events(source: Source, stream: TextIO, wait: Callable[[float], bool]) -> Iterator[AnyEvent]:
    pace = Pace(source, _MOST_PENDING_EVENTS)
    while source.is_growing:
        pace.begin()
        while pace.has_time and (events := source.take(_BATCH_EVENTS)):
            yield from events
        stream.flush()
        rest_s = pace.rest_s() if source.num_pending else REFRESH_INTERVAL_S
        if source.is_growing and wait(rest_s):
            return
