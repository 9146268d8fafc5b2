"""A prediction that lies outside of what was measured says so, whichever command makes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand

MEASURED = ("--calibration", "h200-qwen3-0.6b")
NOTE = "steps lie outside of what was measured, their times are extrapolated; measured were decode steps of up to"


@pytest.fixture(scope="module")
def long_prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extrapolation") / "long.jsonl"
    lines = [{"id": index, "prompt_len": 5000, "max_tokens": 3, "arrival": float(index)} for index in range(2)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("command", "options", "counts"),
    [
        ("simulate", (), "6 of 6"),
        ("simulate", ("--replicas", 2), "6 of 6"),
        ("policies", (), "12 of 12"),
    ],
)
def test_it_is_one_note(
    run: RunCommand, long_prompts: Path, command: str, options: tuple[object, ...], counts: str
) -> None:
    outcome = run(command, long_prompts, *MEASURED, *options)
    assert (outcome.code, outcome.err.count("\n")) == (0, 1)
    assert outcome.err.startswith(f"note: {counts} {NOTE}")


def test_a_comparison_tells_it_of_its_simulation(run: RunCommand, long_prompts: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.jsonl"
    assert run("simulate", long_prompts, "--trace", real).code == 0
    outcome = run("compare", real, *MEASURED, "--json")
    told = json.loads(outcome.out)
    assert (told["num_steps"], told["num_extrapolated_steps"]) == (6, 6)
    assert outcome.err.startswith(f"note: 6 of 6 {NOTE}")


def test_programs_are_told_a_number(run: RunCommand, long_prompts: Path, workload: Path) -> None:
    for load, options, expected in ((long_prompts, (), 6), (long_prompts, ("--replicas", 2), 6), (workload, (), 0)):
        told = json.loads(run("simulate", load, *MEASURED, "--json", *options).out)
        assert told["num_extrapolated_steps"] == expected
    told = json.loads(run("policies", long_prompts, *MEASURED, "--json").out)
    assert [each["num_extrapolated_steps"] for each in told["policies"]] == [6, 6]


def test_within_what_was_measured_there_is_nothing_to_say(run: RunCommand, workload: Path) -> None:
    assert run("simulate", workload, *MEASURED).err == ""


def test_the_table_of_a_sweep_has_a_column_where_there_are_some(run: RunCommand) -> None:
    words = ("sweep", "--set", "num_requests=2", "--set", "output_len=3", "--set", "calibration=h200-qwen3-0.6b")
    assert "extrapolated steps" in run(*words, "--vary", "prompt_len=100,5000").out
    assert "extrapolated" not in run(*words, "--vary", "prompt_len=100,200").out
