"""What ``nanovllm sweep`` says beside its table: of limits, and of decisions by what no server knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand
from tests.cli.test_simulate import AZURE
from tests.cli.test_sweep import words_of

pytest.importorskip("joblib", reason="needs the extra sweep")
pytest.importorskip("pyarrow", reason="needs the extra sweep")

SEARCH = {"gpu": "l4", "prompt_len": 200, "output_len": 40, "find_rate": 0.9, "rate_tolerance": 0.1}


def test_a_limit_that_there_is_not_is_told_as_such(run: RunCommand) -> None:
    lengths = ["--vary", "output_len=30,40", "--jobs", 1]
    settings = {name: value for name, value in SEARCH.items() if name != "output_len"}
    outcome = run("sweep", *words_of({**settings, "slo_tpot": 60, "load_duration_s": 3}), *lengths)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count(" any ") == 2
    assert "fails at" not in outcome.out


def test_cells_that_may_rank_by_the_true_lengths_of_answers_are_told(run: RunCommand, tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    trace.write_text(AZURE)
    words = ("--set", f"workload={trace}", "--vary", "router=round_robin,least_loaded", "--set", "replicas=2")
    told = run("sweep", *words, "--jobs", 1, "--store", tmp_path / "store").err
    assert told.startswith("note: in 1 of 2 cells max_tokens are the true answer lengths, which no server knows: ")
    assert run("sweep", *words, "--jobs", 1, "--set", "trace_max_tokens=99").err == ""


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ({"num_sessions": 3, "num_turns": 1}, "all 3 conversations"),
        ({"num_agents": 2, "num_calls": 1}, "all 2 agents"),
        ({"num_requests": 4}, "all 4 requests"),
        ({"arrivals": "poisson:3"}, "all requests"),
    ],
)
def test_too_few_for_a_limit_are_told(load: dict[str, Any], told: str, run: RunCommand) -> None:
    outcome = run("sweep", *words_of({"find_rate": 0.9, "slo_ttft": 60, **load}), "--jobs", 1)
    assert outcome.err == f"note: in 1 of 1 cell {told} at once still meet the objective: give more to find a limit\n"
    assert outcome.out.count(" any ") == 1


def test_limits_that_are_not_steady_are_told(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = {"slo_ttft": 0.2, "slo_tpot": 0.03}
    short = run("sweep", *words_of({**SEARCH, **objective, "load_duration_s": 3, "rate": 4}), "--jobs", 1)
    assert short.err.startswith("note: in 1 of 1 cell requests come for less than 10 times as long as one lives: ")
    monkeypatch.setattr("sim.sweeps.steady_rate.FIRST_WINDOW_S", 2.0)
    monkeypatch.setattr("sim.sweeps.steady_rate.ENOUGH_REQUESTS", 1000)
    monkeypatch.setattr("sim.sweeps.steady_rate.MIN_REQUESTS", 10)
    moving = run("sweep", *words_of({**SEARCH, **objective, "rate_tolerance": 0.001, "rate": 4}), "--jobs", 1)
    assert moving.err.startswith("note: in 1 of 1 cell the limit still moved when requests came for twice as long")
    assert "drift" in moving.out
