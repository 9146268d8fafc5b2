"""The highest rate of requests at which a service level objective is met: what a deployment can carry.

Doubling (or halving) finds two rates, of which the lower meets the objective and the higher does not; then the gap is
halved, in the logarithm, until it is narrow enough. Etalon and Vidur search in the same way, and call it capacity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Run = TypeVar("Run")

LOWEST_START, HIGHEST_START = 1e-6, 1e6
"""Requests a second at which a search may begin."""
MAX_DOUBLINGS = 64
"""From there to any rate that an engine could meet."""
MIN_BUSY_SHARE = 0.001
"""Where engines compute for less than this share of the time and the objective is still not met, a lower rate would not
meet it either: hardly any request meets another."""


@dataclass(frozen=True)
class FoundRate(Generic[Run]):
    """What a search came to. Rates are those of the load: requests, conversations or agents a second."""

    highest_rate: float | None
    """The highest rate tried that meets the objective; 0 if none does, down to ``MIN_BUSY_SHARE`` or to where nobody
    comes; None if every rate does."""
    lowest_failing_rate: float | None
    """The lowest rate tried above it, which does not; None if every rate meets the objective."""
    num_simulations: int
    run: Run
    """The run at ``highest_rate``; if that is 0, at ``lowest_failing_rate``; if it is None, at the highest tried."""


@dataclass(frozen=True)
class Steps:
    """By which factor each rate differs from the one before it, until two are found with the limit between them."""

    first: float = 2.0
    most: float = 2.0
    """Each factor is the square of the one before it, up to this."""

    def rates(self, start: float, *, upward: bool) -> Iterator[float]:
        """The rates after ``start``, upward or downward, ``2 ** MAX_DOUBLINGS`` apart at the most. On the way down none
        is less than half of the one before: times so long that clocks have no digits left for a step tell nothing."""
        rate, factor, most = start, self.first, self.most if upward else min(2.0, self.most)
        while 2.0**-MAX_DOUBLINGS < rate / start < 2.0**MAX_DOUBLINGS:
            rate = rate * factor if upward else rate / factor
            yield rate
            factor = min(factor**2, most)


def find_highest_rate(
    simulate: Callable[[float], Run],
    meets: Callable[[Run], bool],
    *,
    is_unlimited: Callable[[Run], bool],
    busy_share: Callable[[Run], float],
    is_empty: Callable[[Run], bool],
    start: float,
    tolerance: float,
    steps: Steps | None = None,
) -> FoundRate[Run]:
    """Search from the rate ``start`` until ``lowest_failing_rate`` is at most ``1 + tolerance`` times ``highest_rate``.

    ``is_unlimited``: of a run that meets the objective, whether one at any higher rate would as well; ``busy_share``:
    of a run's time, that was spent in steps; ``is_empty``: whether no request came to it, so that it tells nothing. The
    search takes for granted that whoever fails at some rate fails at all higher ones. That is so but for a narrow range
    around the limit, where chance decides: there the result is one of several rates at which the answer changes.
    """
    steps = steps or Steps()
    tried: dict[float, Run] = {}

    def is_met(rate: float) -> bool:
        tried[rate] = simulate(rate)
        return meets(tried[rate])

    def is_idle(rate: float) -> bool:
        return busy_share(tried[rate]) < MIN_BUSY_SHARE

    if is_met(start):
        low, high = _go_up(start, steps, is_met, lambda rate: is_unlimited(tried[rate]))
        if high is None:
            return FoundRate(None, None, len(tried), tried[low])
    else:
        low, high = _go_down(start, steps, is_met, is_idle, lambda rate: is_empty(tried[rate]))
        if low == 0:
            return FoundRate(0.0, high, len(tried), tried[high])
    while high > low * (1 + tolerance):
        middle = math.sqrt(low) * math.sqrt(high)
        if is_met(middle):
            low = middle
        else:
            high = middle
    return FoundRate(low, high, len(tried), tried[low])


def _go_up(
    start: float, steps: Steps, is_met: Callable[[float], bool], is_unlimited: Callable[[float], bool]
) -> tuple[float, float | None]:
    """From a rate that meets the objective to the last that does, and the next, which does not; None: there is none."""
    low = start
    for rate in steps.rates(start, upward=True):
        if is_unlimited(low):
            break
        if not is_met(rate):
            return low, rate
        low = rate
    return low, None


def _go_down(
    start: float,
    steps: Steps,
    is_met: Callable[[float], bool],
    is_idle: Callable[[float], bool],
    is_empty: Callable[[float], bool],
) -> tuple[float, float]:
    """From a rate that does not meet the objective to the first that does, and the one before it; 0: there is none."""
    high = start
    for rate in steps.rates(start, upward=False):
        if is_idle(high):
            break
        if is_met(rate):
            return rate, high
        if is_empty(rate):
            break
        high = rate
    return 0.0, high
