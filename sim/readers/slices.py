"""A part of a trace: by time, then by number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from nanovllm.checks import check_whole_number, is_number
from nanovllm.errors import ConfigError, WorkloadError


class _Row(Protocol):
    @property
    def line(self) -> int: ...

    @property
    def time_ns(self) -> int: ...


Row = TypeVar("Row", bound=_Row)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Which requests are kept. Raises ``ConfigError``."""

    skip: int = 0
    """Of those in the span of time, leave out so many at the beginning."""
    limit: int | None = None
    """Then take at most so many."""
    start_s: float = 0.0
    """The span of time: from so many seconds after the first request of the trace …"""
    end_s: float | None = None
    """… to before so many; None for its end."""

    def __post_init__(self) -> None:
        check_whole_number("skip", self.skip, 0)
        if self.limit is not None:
            check_whole_number("limit", self.limit, 1)
        if not is_number(self.start_s) or self.start_s < 0:
            raise ConfigError("start_s", self.start_s, "a number of seconds from 0 upward")
        if self.end_s is not None and (not is_number(self.end_s) or self.end_s <= self.start_s):
            raise ConfigError("end_s", self.end_s, f"a number of seconds above start_s={self.start_s}")

    def has(self, time_s: float) -> bool:
        """Whether this moment is in the span of time."""
        return self.start_s <= time_s and not self.has_ended_at(time_s)

    def has_ended_at(self, time_s: float) -> bool:
        """Whether the span of time has ended at this moment."""
        return self.end_s is not None and time_s >= self.end_s


def cut(part: Slice, path: str | Path, rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    """The rows of a trace that are kept, each with its number in it; no more are read than needed. Raises
    ``WorkloadError`` for one that came before the one above it."""
    return islice(islice(_in_span(part, path, rows), part.skip, None), part.limit)


def _in_span(part: Slice, path: str | Path, rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    first_ns: int | None = None
    latest_ns = 0
    for number, row in enumerate(rows):
        if first_ns is None:
            first_ns = row.time_ns
        elif row.time_ns < latest_ns:
            raise WorkloadError(path, "the request came before the one above it: a trace must be sorted", row.line)
        latest_ns = row.time_ns
        time_s = (latest_ns - first_ns) / 1e9
        if part.has_ended_at(time_s):
            return
        if part.has(time_s):
            yield number, row
