"""Summaries of latencies."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

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
        self._values = sorted(numbers)
        if isinstance(numbers, Counter):
            counts = [numbers[value] for value in self._values]
            self._ranks: Sequence[int] = list(accumulate(counts))
            total = math.fsum(map(mul, self._values, counts))
        else:
            self._ranks = range(1, len(self._values) + 1)
            total = math.fsum(self._values)
        self.count = self._ranks[-1]
        self.mean = total / self.count
        self.min, self.max = self._values[0], self._values[-1]

    def percentile(self, share: float) -> float:
        """The number that ``share`` (0 to 1) of all lie below, interpolated linearly between the two nearest."""
        position = share * (self.count - 1)
        below = math.floor(position)
        low, high = (self._values[bisect_right(self._ranks, min(rank, self.count - 1))] for rank in (below, below + 1))
        return low + (high - low) * (position - below)


def summarize(durations_s: Iterable[float]) -> Latency | None:
    """Sum up durations; a ``Counter`` says how often each occurred. None if there are none."""
    numbers = durations_s if isinstance(durations_s, Counter) else list(durations_s)
    if not numbers:
        return None
    distribution = Distribution(numbers)
    return Latency(
        count=distribution.count,
        mean=distribution.mean,
        p50=distribution.percentile(0.5),
        p90=distribution.percentile(0.9),
        p95=distribution.percentile(0.95),
        p99=distribution.percentile(0.99),
        max=distribution.max,
    )
