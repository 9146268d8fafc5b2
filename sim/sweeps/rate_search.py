"""The highest rate of requests at which a service level objective is met: what a deployment can carry.

Doubling (or halving) finds two rates, of which the lower meets the objective and the higher does not; then the gap is
halved, in the logarithm, until it is narrow enough. Etalon and Vidur search in the same way, and call it capacity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Run = TypeVar("Run")

LOWEST_START, HIGHEST_START = 1e-6, 1e6
"""Requests a second at which a search may begin."""
MAX_DOUBLINGS = 64
"""From there to any rate that an engine could meet."""
MAX_OVERLOAD = 8.0
"""Where the rate is so many times that of the requests that are served and the objective is still met, a higher one
would not fail either: its limits are none for the queue, or the load ends before a queue has grown."""
MIN_BUSY_SHARE = 0.001
"""Where engines compute for less than this share of the time and the objective is still not met, a lower rate would not
meet it either: hardly any request meets another."""


@dataclass(frozen=True)
class FoundRate(Generic[Run]):
    """What a search came to. Rates are those of the load: requests, conversations or agents a second."""

    highest_rate: float
    """The highest rate tried that meets the objective; 0 if none does, down to ``MIN_BUSY_SHARE`` or to where nobody
    comes."""
    lowest_failing_rate: float | None
    """The lowest rate tried above it, which does not; None if none failed up to ``MAX_OVERLOAD``."""
    num_simulations: int
    run: Run
    """The run at ``highest_rate``; if there is none, at ``lowest_failing_rate``."""


def find_highest_rate(
    simulate: Callable[[float], Run],
    meets: Callable[[Run], bool],
    *,
    served_rate: Callable[[Run], float],
    busy_share: Callable[[Run], float],
    is_empty: Callable[[Run], bool],
    start: float,
    tolerance: float,
) -> FoundRate[Run]:
    """Search from the rate ``start`` until ``lowest_failing_rate`` is at most ``1 + tolerance`` times ``highest_rate``.

    ``served_rate``: requests a second that a run completed; ``busy_share``: of its time, that was spent in steps;
    ``is_empty``: whether no request came to it, so that it tells nothing. The search takes for granted that whoever
    fails at some rate fails at all higher ones. That is so but for a narrow range around the limit, where chance
    decides: there the result is one of several rates at which the answer changes.
    """
    tried: dict[float, Run] = {}

    def is_met(rate: float) -> bool:
        tried[rate] = simulate(rate)
        return meets(tried[rate])

    def is_overloaded(rate: float) -> bool:
        return rate > MAX_OVERLOAD * served_rate(tried[rate])

    def is_idle(rate: float) -> bool:
        return busy_share(tried[rate]) < MIN_BUSY_SHARE

    def is_told(rate: float) -> bool:
        return not is_empty(tried[rate])

    low, high = _bracket(is_met, is_overloaded, is_idle, is_told, start)
    while low and high and high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if is_met(middle):
            low = middle
        else:
            high = middle
    return FoundRate(low or 0.0, high, len(tried), tried[low or high or start])


def _bracket(
    is_met: Callable[[float], bool],
    is_overloaded: Callable[[float], bool],
    is_idle: Callable[[float], bool],
    is_told: Callable[[float], bool],
    start: float,
) -> tuple[float | None, float | None]:
    """A rate that meets the objective, and its double, which does not; None for one that is not found."""
    rate = start
    if is_met(rate):
        for _ in range(MAX_DOUBLINGS):
            if is_overloaded(rate):
                break
            if not is_met(2 * rate):
                return rate, 2 * rate
            rate *= 2
        return rate, None
    for _ in range(MAX_DOUBLINGS):
        if is_idle(rate):
            break
        if is_met(rate / 2):
            return rate / 2, rate
        if not is_told(rate / 2):
            break
        rate /= 2
    return None, rate
