"""When requests come: each function returns one that draws the arrivals of a workload, without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, repeat
from random import Random
from typing import NamedTuple

from nanovllm.checks import check_positive, check_whole_number, is_number
from nanovllm.errors import ConfigError
from nanovllm.trace.events import RequestId


class Arrival(NamedTuple):
    """When a request comes, by the fields of a workload file: so many seconds from the start, before a step, or some
    time after others."""

    arrival: float | None = None
    arrival_step: int | None = None
    after: tuple[RequestId, ...] = ()
    delay: float = 0.0


Arrivals = Callable[[Random], Iterator[Arrival]]


def at_once() -> Arrivals:
    """All requests are there at the start."""
    return lambda rng: repeat(Arrival(0.0))


def poisson(rate_per_s: float) -> Arrivals:
    """``rate_per_s`` requests a second on average, each independent of the others."""
    return gamma(rate_per_s, cv=1.0)


def gamma(rate_per_s: float, cv: float) -> Arrivals:
    """``rate_per_s`` requests a second on average, with gamma-distributed times between them, whose standard
    deviation is ``cv`` times their mean: 1 is a Poisson process, more comes in bursts, less is more even."""
    check_positive("rate_per_s", rate_per_s)
    if not is_number(cv) or not 0.001 <= cv <= 1000:  # beyond, the draws are lost in rounding
        raise ConfigError("cv", cv, "a number from 0.001 to 1000")
    shape = 1 / cv**2
    scale_s = cv**2 / rate_per_s

    def draw(rng: Random) -> Iterator[Arrival]:
        time_s = 0.0
        while True:
            time_s += rng.gammavariate(shape, scale_s)
            yield Arrival(time_s)

    return draw


def steps(num_requests: int = 1, every: int = 1) -> Arrivals:
    """``num_requests`` requests before step 0, and as many before every ``every``-th step after it: at the same
    place of a run on any backend, however fast it is."""
    check_whole_number("num_requests", num_requests, 1)
    check_whole_number("every", every, 1)
    return lambda rng: (Arrival(None, index // num_requests * every) for index in count())
