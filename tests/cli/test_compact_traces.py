"""Every command reads traces in compact form as it reads JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nanovllm.trace.jsonl import read_trace, write_trace
from tests.cli.conftest import RunCommand
from tests.trace.runs import preempting_run


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["show", "--steps", "2:4"],
        ["metrics", "--json", "--requests"],
        ["check", "--json"],
        ["watch"],
    ],
)
def test_commands_print_the_same_of_both_forms(command: list[str], tmp_path: Path, run: RunCommand) -> None:
    told = []
    for name in ("run.jsonl", "run.nvtrace"):
        write_trace(preempting_run(), tmp_path / name)
        outcome = run("trace", command[0], tmp_path / name, *command[1:])
        told.append((outcome.code, outcome.out.replace(name, ""), outcome.err))
    assert told[0] == told[1]


def test_both_forms_are_the_same_run(tmp_path: Path, run: RunCommand) -> None:
    for name in ("run.jsonl", "run.nvtrace"):
        write_trace(preempting_run(), tmp_path / name)
    outcome = run("trace", "diff", tmp_path / "run.jsonl", tmp_path / "run.nvtrace")
    assert (outcome.code, outcome.out) == (0, "decisions identical\n")


@pytest.mark.parametrize(
    ("command", "ending", "read"),
    [("perfetto", ".perfetto.json", json.loads), ("html", ".html", str), ("plot", ".png", len)],
)
def test_exports_are_the_same_and_stand_beside_the_trace(
    command: str, ending: str, read: Callable[[str | bytes], object], tmp_path: Path, run: RunCommand
) -> None:
    made = []
    for name in ("run.jsonl", "run.nvtrace"):
        write_trace(preempting_run(), tmp_path / name)
        outcome = run("trace", command, tmp_path / name)
        assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'run'}{ending}\n")
        data = (tmp_path / f"run{ending}").read_bytes()
        made.append(read(data if command == "plot" else data.decode().replace(name, "")))
    assert made[0] == made[1]


def test_simulate_writes_it(tmp_path: Path, run: RunCommand) -> None:
    load = tmp_path / "load.jsonl"
    load.write_text('{"id": "a", "prompt_len": 90, "max_tokens": 40}\n{"id": 7, "prompt_len": 50, "max_tokens": 30}\n')
    for name in ("run.jsonl", "run.nvtrace"):
        outcome = run("simulate", load, "--kvcache-block-size", 16, "--trace", tmp_path / name)
        assert (outcome.code, outcome.err) == (0, "")
    assert read_trace(tmp_path / "run.jsonl").events == read_trace(tmp_path / "run.nvtrace").events
