"""``nanovllm policies``: the same load under several policies, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand


def test_a_row_a_policy(workload: Path, run: RunCommand) -> None:
    outcome = run("policies", workload, "--policies", "mixed,shortest_first")
    assert (outcome.code, outcome.err) == (0, "")
    for part in ("│ mixed ", "│ shortest_first ", "between two tokens p50", "longest", "simulated in"):
        assert part in outcome.out


def test_json_has_the_figures_of_the_single_runs(workload: Path, run: RunCommand) -> None:
    told = json.loads(run("policies", workload, "--max-num-seqs", 2, "--json").out)["policies"]
    assert [each["policy"] for each in told] == ["prefill_first", "mixed"]
    for each in told:
        words = ("--policy", each["policy"], "--max-num-seqs", 2, "--json")
        assert each["metrics"] == json.loads(run("simulate", workload, *words).out)["metrics"]


def test_a_figure_is_drawn(workload: Path, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "gaps.png"
    assert run("policies", workload, "--figure", path).code == 0
    around_all = path.read_bytes()
    assert run("policies", workload, "--figure", path, "--window", "0:0.01").code == 0
    assert path.read_bytes()[:8] == around_all[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.read_bytes() != around_all


def test_a_request_that_can_never_run_is_told_once(workload: Path, run: RunCommand) -> None:
    outcome = run("policies", workload, "--max-model-len", 50)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "request 'a'" in outcome.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--policies fifo", "policies='fifo' is not allowed: some of prefill_first, mixed, priority, shortest_first"),
        ("--policies mixed,mixed", "policies='mixed,mixed' is not allowed"),
        ("--window 3", "window='3' is not allowed: the first and the last second, such as 12:30.5"),
        ("--window 5:2", "window='5:2' is not allowed"),
        ("--window 0:inf", "window='0:inf' is not allowed"),
        ("--window nan:1", "window='nan:1' is not allowed"),
        ("--figure gaps.gif", "gaps.gif: is no name for a picture"),
        ("--policy mixed", "no such option: --policy"),
    ],
)
def test_mistakes_are_one_line(words: str, problem: str, workload: Path, run: RunCommand) -> None:
    outcome = run("policies", workload, *words.split())
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"error: {problem}")
