"""The highest rate that a cell can carry: what is searched, for how long requests come, and when no rate is too high.

An engine begins empty. Near its limit it fills slowly, over many times the life of a request, and until it is full it
seems to carry more than it does. So the time for which requests come is doubled until that no longer moves the limit,
and until so many come that chance hardly does. A load of a fixed number of requests (a file, say) is searched as it is:
pressed together, up to all at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from nanovllm.errors import ConfigError
from sim.sweeps.cell_run import CellRun
from sim.sweeps.figures import Figures
from sim.sweeps.loads import DrawnLoad, Load
from sim.sweeps.rate_search import FoundRate, Steps, find_highest_rate
from sim.sweeps.settings import CellSettings

FIRST_WINDOW_S = 60.0
"""So long requests come in the first search."""
LONGEST_WINDOW_S = 16 * FIRST_WINDOW_S
"""And in the last, whether the limit moves still or not, unless requests live too long for it."""
MIN_LIVES = 10
"""Of a request, that requests should come for."""
ENOUGH_REQUESTS = 20_000
"""No window is doubled to hold more: what chance does to so many is less than most tolerances."""
MIN_REQUESTS = 100
"""So many come on average, at low rates for longer than the window."""
MAX_REQUESTS = 200_000
"""In one simulation, on average: more would take minutes."""
MAX_OVERLOAD = 8.0
"""Where an engine is still busy after so many times the time in which requests came and one is served, its slots have
been full all the time. At a higher rate they would be no fuller, but may be filled in another order: see
``_is_unlimited``."""
_AT_ONCE = 1e12
"""Requests a second that are there before a step has passed."""
_TO_ALL_AT_ONCE = Steps(most=2.0**32)
"""The number of requests is the same at each rate, and so is the time that a simulation takes."""


@dataclass(frozen=True, kw_only=True)
class SearchedRate:
    """What the searches of a cell came to."""

    found: FoundRate[CellRun]
    """By the last of them."""
    num_simulations: int
    """Of all together."""
    window_s: float | None
    """So long requests came in the last search; None where their number was fixed."""
    drift: float | None
    """By which share the limit moved when the window was doubled the last time, -0.05 where it fell by a twentieth;
    None where it was not doubled."""


def search_rate(cell: CellSettings, simulate: Callable[[Load], CellRun]) -> SearchedRate:
    """Find the highest rate at which ``find_rate`` of the requests meet the objective of a cell.

    ``simulate`` runs a load on the cell's engines. Raises ``UserError``, also if the limit is not found in simulations
    of ``MAX_REQUESTS``.
    """
    load, start, count = cell.load, cell.load.rate or 1.0, itertools.count()

    def counted(load: Load) -> CellRun:
        next(count)
        return simulate(load)

    window_s: float | None = None
    drift: float | None = None
    if not isinstance(load, DrawnLoad) or load.num_requests is not None or load.arrivals is not None:
        found = _search(cell, lambda rate: counted(load.at_rate(rate)), lambda run: False, start, _TO_ALL_AT_ONCE)
    elif load.load_duration_s is not None:
        window_s = load.load_duration_s
        found = _search_window(cell, load, counted, window_s, start, Steps())
    else:
        found, window_s, drift = _search_until_steady(cell, load, counted, start)
    return SearchedRate(found=found, num_simulations=next(count), window_s=window_s, drift=drift)


def _search_until_steady(
    cell: CellSettings, load: DrawnLoad, simulate: Callable[[Load], CellRun], start: float
) -> tuple[FoundRate[CellRun], float, float | None]:
    """What was found in the last window, how long that was, and by which share it moved from the one before."""
    window_s, drift, tolerance = FIRST_WINDOW_S, None, cell.search.rate_tolerance

    def search(rate: float, steps: Steps) -> FoundRate[CellRun]:
        return _search_window(cell, load, simulate, window_s, rate, steps)

    found = search(start, Steps())
    while found.highest_rate:
        num_requests, is_long = window_s * found.highest_rate, window_s >= MIN_LIVES * life_s(found.run.figures)
        if drift is not None and is_steady(drift, tolerance) and is_long and num_requests >= _num_for(tolerance):
            break
        if 2 * num_requests > ENOUGH_REQUESTS or (is_long and window_s >= LONGEST_WINDOW_S):
            break
        window_s *= 2
        before, found = found.highest_rate, search(found.highest_rate, Steps(first=1 + tolerance))
        drift = None if found.highest_rate is None else found.highest_rate / before - 1
    return found, window_s, drift


def life_s(figures: Figures) -> float:
    """How long the median request is there; 0 if none was completed."""
    return float(figures["end_to_end_p50_s"] or 0.0)


def is_steady(drift: float, tolerance: float) -> bool:
    """Whether a limit that moved by the share ``drift``, when requests came for twice as long, may be told as one."""
    return abs(drift) <= tolerance * (1 + 1e-9)  # a step of a search is as long as the tolerance


def _num_for(tolerance: float) -> float:
    """How many requests a window needs so that chance moves their work by no more than ``tolerance``, as a share of it.
    With lengths that vary as exponential ones do, and Poisson arrivals, its standard deviation is √(2 / number)."""
    return 2 / tolerance**2


def _search_window(
    cell: CellSettings,
    load: DrawnLoad,
    simulate: Callable[[Load], CellRun],
    window_s: float,
    start: float,
    steps: Steps,
) -> FoundRate[CellRun]:
    """The search with requests that come for ``window_s``."""
    least = MIN_REQUESTS if load.load_duration_s is None else 0

    def run(rate: float) -> CellRun:
        duration_s = max(window_s, least / rate)
        if rate * duration_s > MAX_REQUESTS:
            raise ConfigError("rate", rate, _too_many(rate * duration_s, duration_s, rate > start))
        return simulate(replace(load, rate=rate, load_duration_s=duration_s))

    def is_unlimited(run: CellRun) -> bool:
        return _is_unlimited(run, cell, window_s, lambda: simulate(_at_once(load, run.num_requests)))

    found = _search(cell, run, is_unlimited, start, steps)
    if not found.run.num_requests:
        raise ConfigError("rate", start, "no request comes in load_duration_s, begin with a higher one")
    return found


def _too_many(num_requests: float, duration_s: float, is_none_found: bool) -> str:
    told = f"in {duration_s:g} s {num_requests:,.0f} requests would come, a search has at most {MAX_REQUESTS:,}"
    return f"no limit is found below: {told}" if is_none_found else f"begin with a lower one: {told}"


def _search(
    cell: CellSettings,
    run: Callable[[float], CellRun],
    is_unlimited: Callable[[CellRun], bool],
    start: float,
    steps: Steps,
) -> FoundRate[CellRun]:
    return find_highest_rate(
        run,
        lambda run: _is_met(run, cell),
        is_unlimited=is_unlimited,
        busy_share=lambda run: run.busy_share,
        is_empty=lambda run: not run.num_requests,
        start=start,
        tolerance=cell.search.rate_tolerance,
        steps=steps,
    )


def _is_met(run: CellRun, cell: CellSettings) -> bool:
    assert cell.search.find_rate is not None, "only a cell that asks for a rate is searched"
    return run.attainment >= cell.search.find_rate


def _is_unlimited(run: CellRun, cell: CellSettings, window_s: float, run_at_once: Callable[[], CellRun]) -> bool:
    """Whether an objective that says nothing of waiting is met by an engine that could not have more to do, and also if
    all that came to it is there at once."""
    if cell.slo.time_to_first_token_s is not None or cell.slo.end_to_end_s is not None:
        return False
    figures = run.figures
    service_s = life_s(figures) - (figures["queueing_p50_s"] or 0.0)
    is_overloaded = figures["duration_s"] > MAX_OVERLOAD * (window_s + service_s)
    return is_overloaded and _is_met(run_at_once(), cell)


def _at_once(load: DrawnLoad, num_requests: int) -> DrawnLoad:
    return replace(load, num_requests=num_requests, load_duration_s=None, rate=_AT_ONCE)
