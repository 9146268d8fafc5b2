"""When the tokens of each request came: what figures of the gaps between them are drawn from."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nanovllm.trace.events import (
    AnyEvent,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    TokensAppended,
    TraceStarted,
)
from viz.figures.history import FloatArray, Source, events_of


@dataclass
class RequestTokens:
    """One request: seconds since the start of the run."""

    request: RequestId
    arrival_s: float
    times_s: array[float] = field(default_factory=lambda: array("d"))
    """When its tokens came, in order."""


class TokenTimes:
    """Takes in the events of one run, in order, and keeps of them the times of tokens only: a number each. So that a
    long run needs no trace in memory, ``apply`` or ``apply_all`` may listen to it."""

    def __init__(self, label: str = "") -> None:
        """``label``: what figures call the run; by default its policy."""
        self.label = label
        self.requests: list[RequestTokens] = []
        """In the order in which they were handed over."""
        self._present: dict[RequestId, RequestTokens] = {}
        self._got_token: list[RequestTokens] = []

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, TokensAppended):
            self._got_token = [self._present[request] for request in event.requests]
        elif isinstance(event, StepFinished):
            for tokens in self._got_token:
                tokens.times_s.append(event.time)
            self._got_token = []
        elif isinstance(event, RequestAdded):
            tokens = RequestTokens(event.request, event.arrival)
            self.requests.append(tokens)
            self._present[event.request] = tokens
        elif isinstance(event, RequestFinished):
            del self._present[event.request]
        elif isinstance(event, TraceStarted):
            self.label = self.label or event.policy

    def apply_all(self, events: Iterable[AnyEvent]) -> None:
        """Take in several events."""
        for event in events:
            self.apply(event)

    def gaps_s(self) -> FloatArray:
        """The times between consecutive tokens of a request, those of all requests, ascending."""
        gaps = [np.diff(np.array(tokens.times_s)) for tokens in self.requests]
        return np.sort(np.concatenate(gaps)) if gaps else np.empty(0)

    def longest_gap(self) -> tuple[float, float] | None:
        """When the longest time without a token for a request that had one began, and when it ended."""
        longest: tuple[float, float] | None = None
        for tokens in self.requests:
            times_s = np.array(tokens.times_s)
            if len(times_s) < 2:
                continue
            index = int(np.argmax(np.diff(times_s)))
            start_s, end_s = float(times_s[index]), float(times_s[index + 1])
            if longest is None or end_s - start_s > longest[1] - longest[0]:
                longest = start_s, end_s
        return longest


def token_times_of(source: Source | TokenTimes, label: str = "") -> TokenTimes:
    """The times of a run: from its trace or events, unless they are there. Raises ``TraceError`` if it is empty."""
    if isinstance(source, TokenTimes):
        return source
    token_times = TokenTimes(label)
    token_times.apply_all(events_of(source)[1])
    return token_times
