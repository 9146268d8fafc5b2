"""A search tells what a deployment carries for ever: not what it carries for a while, nor as long as nobody looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sim.sweeps import Sweep, run_cell
from sim.sweeps.steady_rate import FIRST_WINDOW_S, LONGEST_WINDOW_S, MIN_LIVES, MIN_REQUESTS, is_steady
from sim.workload import WorkloadRequest, write_workload

SMALL: dict[str, Any] = {"gpu": "l4", "prompt_len": 300, "output_len": 60, "find_rate": 0.9, "rate_tolerance": 0.1}
SHARES = st.sampled_from([0.3, 0.9, 1.0])
LIMITS = st.dictionaries(
    st.sampled_from(["slo_ttft", "slo_tpot", "slo_itl", "slo_e2e"]),
    st.sampled_from([0.01, 0.03, 0.1, 0.5, 3.0, 20.0]),
    min_size=1,
    max_size=2,
)
LOADS = st.sampled_from([{"load_duration_s": 3.0}, {"load_duration_s": 6.0}, {"num_requests": 40}])


def row_of(**changes: Any) -> dict[str, Any]:
    row = run_cell(Sweep(settings=changes).cells()[0])
    assert row["error"] is None
    return row


def attainment(load: dict[str, Any], rate: float) -> float:
    """Of the same load at some rate, without a search."""
    rest = {name: value for name, value in load.items() if name not in ("find_rate", "rate_tolerance")}
    return float(row_of(**rest | {"rate": rate})["slo_attainment"])


@settings(max_examples=12, deadline=None)
@given(LIMITS, LOADS, SHARES, st.sampled_from(["prefill_first", "mixed"]), st.sampled_from([4, 64]))
def test_a_limit_is_one_and_where_there_is_none_no_rate_is_too_high(
    limits: dict[str, float], load: dict[str, Any], share: float, policy: str, num_seqs: int
) -> None:
    cell = {**SMALL, **limits, **load, "find_rate": share, "policy": policy, "max_num_seqs": num_seqs}
    row = row_of(**cell)
    if row["highest_rate"] is None:
        assert row["lowest_failing_rate"] is None
        for rate in (1.0, 100.0, 1600.0):
            assert attainment(cell, rate) >= share
    else:
        assert attainment(cell, row["lowest_failing_rate"]) < share
        if row["highest_rate"]:
            assert attainment(cell, row["highest_rate"]) >= share


@pytest.mark.parametrize("slo", [{"slo_ttft": 0.5, "slo_tpot": 0.05}, {"slo_tpot": 0.05}, {"slo_e2e": 60}])
def test_a_short_load_of_long_requests_has_a_limit(slo: dict[str, float]) -> None:
    cell = {"gpu": "l4", "output_len": 1000, "find_rate": 0.9, "rate": 2, "load_duration_s": 5, **slo}
    row = row_of(**cell)
    assert row["lowest_failing_rate"] is not None
    assert attainment(cell, row["lowest_failing_rate"]) < 0.9 <= attainment(cell, row["highest_rate"])


def test_a_limit_that_only_a_crowd_could_reach_is_looked_for_there() -> None:
    """At eight times what is served, and at sixteen, nobody waits for so long in two seconds."""
    row = row_of(**SMALL, slo_ttft=60, load_duration_s=2, rate=4)
    assert row["lowest_failing_rate"] > 300
    assert row["time_to_first_token_p99_s"] > 50


def test_a_limit_beyond_all_simulations_is_not_called_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.sweeps.steady_rate.MAX_REQUESTS", 500)
    (cell,) = Sweep(settings={**SMALL, "slo_ttft": 1e6, "load_duration_s": 1, "rate": 200}).cells()
    assert run_cell(cell)["error"] == (
        "rate=800.0 is not allowed: no limit is found below: in 1 s 800 requests would come, a search has at most 500"
    )


def test_a_search_that_begins_with_too_many_requests_fails() -> None:
    (cell,) = Sweep(settings={**SMALL, "slo_ttft": 1, "rate": 1e6}).cells()
    assert "rate=1000000.0 is not allowed: begin with a lower one: in 60 s 60,000,000" in run_cell(cell)["error"]


def test_requests_come_for_as_long_as_it_makes_a_difference() -> None:
    cell = {**SMALL, "slo_ttft": 0.5, "model": "qwen3-4b", "max_num_seqs": 8}
    short, steady = row_of(**cell, load_duration_s=FIRST_WINDOW_S), row_of(**cell)
    assert (short["search_window_s"], short["rate_drift"]) == (FIRST_WINDOW_S, None)
    assert FIRST_WINDOW_S < steady["search_window_s"] <= LONGEST_WINDOW_S
    assert is_steady(steady["rate_drift"], 0.1) or steady["search_window_s"] == LONGEST_WINDOW_S
    assert steady["search_window_s"] >= MIN_LIVES * steady["end_to_end_p50_s"]
    again = row_of(**cell, load_duration_s=2 * steady["search_window_s"])
    assert again["highest_rate"] == pytest.approx(steady["highest_rate"], rel=0.25)


def test_requests_that_live_long_come_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit may not move while none has been answered yet."""
    monkeypatch.setattr("sim.sweeps.steady_rate.FIRST_WINDOW_S", 0.25)
    monkeypatch.setattr("sim.sweeps.steady_rate.LONGEST_WINDOW_S", 0.5)
    row = row_of(**{**SMALL, "rate_tolerance": 0.5, "rate": 8}, slo_e2e=2)
    assert row["search_window_s"] >= MIN_LIVES * row["end_to_end_p50_s"] > 0.5


def test_at_low_rates_enough_requests_come() -> None:
    """A card on which a request takes seconds, and may not meet another."""
    row = row_of(gpu="l4", prompt_len=2000, output_len=400, model="qwen3-4b", find_rate=0.9, slo_tpot=0.038)
    assert 0 < row["highest_rate"] < 1
    assert row["num_completed"] > 0.7 * MIN_REQUESTS


def test_a_file_is_pressed_together_until_all_are_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    write_workload(path, [WorkloadRequest(id=i, prompt_len=400, max_tokens=30, arrival=i) for i in range(40)])
    cell = {"workload": str(path), "gpu": "l4", "find_rate": 1.0}
    lenient, strict = row_of(**cell, slo_ttft=60), row_of(**cell, slo_ttft=0.1)
    assert (lenient["highest_rate"], lenient["lowest_failing_rate"]) == (None, None)
    assert lenient["num_simulations"] < 10
    assert attainment(cell | {"slo_ttft": 0.1}, strict["lowest_failing_rate"]) < 1


def test_a_search_draws_for_a_time_unless_told_how_many() -> None:
    wanted = {"slo_ttft": 0.2, "find_rate": 0.9}
    loads: list[dict[str, Any]] = [{}, {"rate": 1}, {"load_duration_s": 60}, {"num_requests": 100}]
    keys = [Sweep(settings={**wanted, **load}).cells()[0].key for load in loads]
    assert keys[0] == keys[1], "a search begins at 1 a second"
    assert len(set(keys)) == 3
