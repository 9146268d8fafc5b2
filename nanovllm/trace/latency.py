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


def summarize(durations_s: Iterable[float]) -> Latency | None:
    """Sum up durations; a ``Counter`` says how often each occurred. None if there are none."""
    ordered = sorted(Counter(durations_s).items())
    if not ordered:
        return None
    values = [value for value, _ in ordered]
    ranks = list(accumulate(count for _, count in ordered))
    total = ranks[-1]

    def percentile(share: float) -> float:
        position = share * (total - 1)
        below = math.floor(position)
        low, high = (values[bisect_right(ranks, min(rank, total - 1))] for rank in (below, below + 1))
        return low + (high - low) * (position - below)

    return Latency(
        count=total,
        mean=math.fsum(value * count for value, count in ordered) / total,
        p50=percentile(0.5),
        p90=percentile(0.9),
        p95=percentile(0.95),
        p99=percentile(0.99),
        max=values[-1],
    )
