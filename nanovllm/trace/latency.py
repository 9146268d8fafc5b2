"""Summaries of latencies."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

import msgspec


class Latency(msgspec.Struct, frozen=True):
    """Mean, percentiles and maximum of ``count`` durations, in seconds.

    Percentiles are exact, interpolated linearly between the two nearest values (as numpy does by default).
    """

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Distribution:
    """Numbers, at least one, in order; a ``Counter`` says how often each occurred."""

    def __init__(self, numbers: Iterable[float]) -> None:
        ordered = sorted(Counter(numbers).items())
        self._values = [value for value, _ in ordered]
        self._ranks = list(accumulate(count for _, count in ordered))
        self.count = self._ranks[-1]
        self.mean = math.fsum(value * count for value, count in ordered) / self.count
        self.min, self.max = self._values[0], self._values[-1]

    def percentile(self, share: float) -> float:
        """The number that ``share`` (0 to 1) of all lie below, interpolated linearly between the two nearest."""
        position = share * (self.count - 1)
        below = math.floor(position)
        low, high = (self._values[bisect_right(self._ranks, min(rank, self.count - 1))] for rank in (below, below + 1))
        return low + (high - low) * (position - below)


def summarize(durations_s: Iterable[float]) -> Latency | None:
    """Sum up durations; a ``Counter`` says how often each occurred. None if there are none."""
    counts = Counter(durations_s)
    if not counts:
        return None
    numbers = Distribution(counts)
    return Latency(
        count=numbers.count,
        mean=numbers.mean,
        p50=numbers.percentile(0.5),
        p90=numbers.percentile(0.9),
        p95=numbers.percentile(0.95),
        p99=numbers.percentile(0.99),
        max=numbers.max,
    )
