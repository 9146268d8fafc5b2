"""The search for the highest rate finds the limit to its tolerance, in few simulations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import ConfigError
from sim.sweeps import Sweep, run_cell
from sim.sweeps.rate_search import (
    HIGHEST_START,
    LOWEST_START,
    MAX_DOUBLINGS,
    MIN_BUSY_SHARE,
    FoundRate,
    Steps,
    find_highest_rate,
)
from sim.workload import WorkloadRequest, write_workload


def search(
    limit: float,
    start: float = 1.0,
    tolerance: float = 0.01,
    fullest: float = math.inf,
    request_s: float = math.inf,
    emptiest: float = 0.0,
    steps: Steps | None = None,
) -> FoundRate[float]:
    """Of a server that meets its objective up to ``limit``, is full at the rate ``fullest`` and needs ``request_s`` for
    each request; below the rate ``emptiest`` none comes. The run is the rate itself."""
    return find_highest_rate(
        lambda rate: rate,
        lambda rate: rate <= limit,
        is_unlimited=lambda rate: rate >= fullest,
        busy_share=lambda rate: min(1.0, rate * request_s),
        is_empty=lambda rate: rate < emptiest,
        start=start,
        tolerance=tolerance,
        steps=steps,
    )


STEPS = st.builds(Steps, first=st.floats(1.001, 2), most=st.sampled_from([2.0, 2.0**32]))


@given(st.floats(1e-4, 1e4), st.floats(1e-2, 1e2), st.floats(0.001, 1), STEPS)
def test_the_limit_lies_between_the_rates_that_are_found(
    limit: float, start: float, tolerance: float, steps: Steps
) -> None:
    found = search(limit, start, tolerance, steps=steps)
    assert found.lowest_failing_rate is not None
    assert found.highest_rate is not None
    assert found.highest_rate <= limit < found.lowest_failing_rate <= found.highest_rate * (1 + tolerance)
    assert found.run == found.highest_rate
    assert found.num_simulations <= 60


def test_few_simulations_are_needed() -> None:
    assert search(5.0).num_simulations == 1 + 3 + 7  # the start, three doublings, 2 halved until it is below 1.01
    assert search(5.0, 4.98, steps=Steps(first=1.01)).num_simulations == 1 + 1, "where the limit is known, nearly"
    assert search(2.0**60, steps=Steps(most=2.0**32)).num_simulations == 1 + 6 + 12, "where no step is too long"


def test_none_if_even_a_lone_request_fails() -> None:
    found = search(0.0)
    assert (found.highest_rate, found.lowest_failing_rate) == (0.0, 2.0**-MAX_DOUBLINGS)
    assert found.run == 2.0**-MAX_DOUBLINGS


def test_it_stops_where_requests_no_longer_meet() -> None:
    found = search(0.0, request_s=0.25)
    assert found.highest_rate == 0.0
    assert found.lowest_failing_rate is not None
    assert MIN_BUSY_SHARE / 2 <= found.lowest_failing_rate * 0.25 < MIN_BUSY_SHARE


def test_a_rate_at_which_nobody_comes_has_not_failed() -> None:
    found = search(0.0, emptiest=0.1)
    assert (found.highest_rate, found.lowest_failing_rate, found.run) == (0.0, 0.125, 0.125)
    assert found.num_simulations == 1 + 4


@pytest.mark.parametrize("start", [LOWEST_START, 1.0, HIGHEST_START])
@pytest.mark.parametrize("limit", [1e-9, 3.0, 1e9])
def test_the_limit_is_found_from_wherever_a_search_may_begin(start: float, limit: float) -> None:
    found = search(limit, start)
    assert found.lowest_failing_rate is not None
    assert found.highest_rate is not None
    assert found.highest_rate <= limit < found.lowest_failing_rate <= found.highest_rate * 1.01


@pytest.mark.parametrize(
    "load", [{"num_requests": 2000}, {"load_duration_s": 0.5, "rate": 20}, {"num_requests": 40, "replicas": 3}]
)
def test_an_objective_that_nobody_meets_is_no_failure(load: dict[str, Any]) -> None:
    settings = {"gpu": "l4", "prompt_len": 1, "output_len": 1, "find_rate": 1, "slo_ttft": 1e-9, **load}
    row = run_cell(Sweep(settings=settings).cells()[0])
    assert (row["status"], row["error"]) == ("completed", None)
    assert (row["highest_rate"], row["slo_attainment"]) == (0.0, 0.0)
    assert row["num_completed"] > 0, "the row is that of a run to which somebody came"
    assert row["lowest_failing_rate"] <= load.get("rate", 1.0)


def test_a_search_that_begins_where_no_request_comes_fails() -> None:
    row = run_cell(Sweep(settings={"find_rate": 0.9, "slo_ttft": 1, "rate": 1e-5, "load_duration_s": 60}).cells()[0])
    assert row["error"] == "rate=1e-05 is not allowed: no request comes in load_duration_s, begin with a higher one"


@pytest.mark.parametrize("kind", [{"num_requests": 12}, {"num_sessions": 10}, {"num_agents": 5}])
@pytest.mark.parametrize("rate", [LOWEST_START, HIGHEST_START])
def test_the_rate_at_which_a_search_begins_does_not_matter(kind: dict[str, int], rate: float) -> None:
    settings = {"gpu": "l4", "slo_ttft": 0.2, "find_rate": 0.8, "rate_tolerance": 0.05, **kind}
    far, near = (run_cell(Sweep(settings={**settings, "rate": begin}).cells()[0]) for begin in (rate, 4.0))
    assert (far["error"], near["error"]) == (None, None)
    if near["lowest_failing_rate"] is None or far["lowest_failing_rate"] is None:
        assert near["lowest_failing_rate"] is far["lowest_failing_rate"]
    else:
        assert far["highest_rate"] == pytest.approx(near["highest_rate"], rel=0.11)


@pytest.mark.parametrize("rate", [1e-7, 2e6])
def test_a_search_begins_at_a_rate_that_leads_somewhere(rate: float) -> None:
    settings = {"num_requests": 3, "slo_ttft": 1, "rate": rate}
    assert run_cell(Sweep(settings=settings).cells()[0])["status"] == "completed"
    with pytest.raises(ConfigError, match=rf"^rate={rate} is not allowed: from 1e-06 to 1e\+06 where a search begins"):
        Sweep(settings={**settings, "find_rate": 0.5})


def test_it_stops_where_no_rate_is_too_high() -> None:
    found = search(math.inf, fullest=3.0)
    assert (found.highest_rate, found.lowest_failing_rate, found.run) == (None, None, 4.0)


def test_a_cell_that_searches_tells_of_the_run_at_the_limit() -> None:
    settings = {"gpu": "l4", "prompt_len": 200, "output_len": 40, "slo_ttft": 0.2, "rate_tolerance": 0.1}
    (cell,) = Sweep(settings={**settings, "find_rate": 0.9, "load_duration_s": 3, "rate": 8}).cells()
    row = run_cell(cell)
    assert row["status"] == "completed"
    assert row["num_simulations"] > 3
    assert row["highest_rate"] < row["lowest_failing_rate"] <= 1.1 * row["highest_rate"]
    for name, is_met in (("highest_rate", True), ("lowest_failing_rate", False)):
        (there,) = Sweep(settings={**settings, "load_duration_s": 3, "rate": row[name]}).cells()
        figures = run_cell(there)
        assert (figures["slo_attainment"] >= 0.9) is is_met
        if is_met:
            assert figures["time_to_first_token_p99_s"] == row["time_to_first_token_p99_s"]


@pytest.mark.parametrize("search_for", [0.5, 1.0])
def test_a_file_is_searched_too(search_for: float, tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    write_workload(path, [WorkloadRequest(id=i, prompt_len=400, max_tokens=30, arrival=i) for i in range(40)])
    settings = {"workload": str(path), "gpu": "l4", "slo_ttft": 0.1, "find_rate": search_for, "rate_tolerance": 0.5}
    row = run_cell(Sweep(settings=settings).cells()[0])
    assert row["status"] == "completed", row["error"]
    assert row["highest_rate"] > 1
