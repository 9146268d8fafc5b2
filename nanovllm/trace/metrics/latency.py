"""Summaries of latencies, and what collects many of them in little memory."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import accumulate, repeat
from operator import mul

import msgspec

MAX_EXACT = 2**20
"""So many numbers are kept as they are."""
MAX_DISTINCT = 2**17
"""So many distinct numbers are counted as they are."""
_SIGNIFICANT_BITS = 13


class Latency(msgspec.Struct, frozen=True):
    """Mean, percentiles and maximum of ``count`` durations, in seconds.

    Percentiles are exact, interpolated linearly between the two nearest values (as numpy does by default). Of very many
    durations, all but the last are rounded by up to 0.012%: see ``Durations`` and ``coarsened``.
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
        counts = [numbers[value] for value in self._values] if isinstance(numbers, Counter) else None
        self._ranks = range(1, len(self._values) + 1) if counts is None else list(accumulate(counts))
        self.count = self._ranks[-1]
        self.mean = _mean(self._values, counts, self.count)
        self.min, self.max = self._values[0], self._values[-1]

    def percentile(self, share: float) -> float:
        """The number that ``share`` (0 to 1) of all lie below, interpolated linearly between the two nearest."""
        position = share * (self.count - 1)
        below = math.floor(position)
        low, high = (self._values[bisect_right(self._ranks, min(rank, self.count - 1))] for rank in (below, below + 1))
        return low + (high - low) * (position - below)


def _mean(values: Sequence[float], counts: Sequence[int] | None, num_values: int) -> float:
    """``counts``: how often each occurs, among ``num_values``; None: once."""
    with suppress(OverflowError):
        total = math.fsum(values if counts is None else map(mul, values, counts))
        if math.isfinite(total):
            return total / num_values
    exact = map(mul, map(Fraction, values), repeat(1) if counts is None else counts)
    return float(sum(exact) / num_values)  # their sum is more than a float can hold


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


class Durations:
    """Collects durations in bounded memory: the last ones, ``MAX_EXACT`` at most, as they are, those before rounded and
    counted."""

    def __init__(self) -> None:
        self._exact = array("d")
        self._rounded: Counter[float] = Counter()
        self.count = 0
        self.total_s = 0.0

    def append(self, duration_s: float) -> None:
        """Take in one more."""
        self._exact.append(duration_s)
        self.count += 1
        self.total_s += duration_s
        if len(self._exact) >= MAX_EXACT:
            self._round()

    def absorb(self, other: Durations) -> None:
        """Take in all that another one has."""
        self._exact.extend(other._exact)
        self._rounded.update(other._rounded)
        self.count += other.count
        self.total_s += other.total_s
        if len(self._exact) >= MAX_EXACT:
            self._round()

    def _round(self) -> None:
        self._rounded.update(map(_rounded, self._exact))
        self._exact = array("d")

    def summarize(self) -> Latency | None:
        """Their summary; None if there are none."""
        if not self._rounded:
            return summarize(self._exact)
        counts = self._rounded.copy()
        counts.update(self._exact)
        return summarize(counts)


def coarsened(counts: Counter[float]) -> Counter[float]:
    """The same durations, rounded, as fewer distinct ones."""
    coarse: Counter[float] = Counter()
    for duration_s, count in counts.items():
        coarse[_rounded(duration_s)] += count
    return coarse


def _rounded(number: float) -> float:
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(mantissa, _SIGNIFICANT_BITS)), exponent - _SIGNIFICANT_BITS)
