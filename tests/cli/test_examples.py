"""The examples that end each command's help run. (Those of the page run in tests/docs.)"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from sim.calibration import write_calibration
from tests.cli.conftest import Outcome, RunCommand
from tests.cli.test_main import COMMANDS
from tests.cli.test_simulate import AZURE, MOONCAKE
from tests.docs.examples import DOCS
from tests.sim.comparison_files import example_calibration, write_vllm_run
from tests.sim.latency_files import write_tables

PAGE = DOCS / "reference" / "cli.md"
WITH_LARGE_MODELS = (
    "nanovllm bench --dummy",
    "nanovllm bench bs1",
    "nanovllm calibrate",
    "nanovllm demo",
    "nanovllm models fetch",
)
"""What these do is tested elsewhere, and takes longer (or a card)."""
ENDLESS = "--follow"
"""Ends with Ctrl-C only."""


@pytest.fixture
def run_line(model_path: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Runs a line as a shell would, in a directory of its own, with a tiny model in the place of the built-in one."""
    monkeypatch.chdir(tmp_path)
    tiny = ["--model", str(model_path), "--max-model-len", "512"]

    def run_words(line: str) -> Outcome:
        program, command, *words = shlex.split(line)
        assert program == "nanovllm"
        if command == "generate":
            words += [*tiny, "--device", "cpu", "--max-tokens", "8"]
        elif "smollm2-135m" in words:
            words += tiny
        return run(command, *words)

    return run_words


def test_the_examples_of_the_help_run(run_line: RunCommand, workload: Path, trace: Path, tmp_path: Path) -> None:
    write_calibration(tmp_path / "h200.json", example_calibration())
    (tmp_path / "vllm_run").mkdir()
    write_vllm_run(write_tables(tmp_path / "vllm_run"))
    for name in ("real.jsonl", "run.jsonl", "simulated.jsonl", "trace.jsonl"):
        shutil.copy(trace, tmp_path / name)
    shutil.copy(workload, tmp_path / "load.jsonl")
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_text(AZURE)
    (tmp_path / "mooncake.jsonl").write_text(MOONCAKE)
    (tmp_path / "prompts.txt").write_text("The quick\nbrown fox\n")
    lines = [line.strip() for command in COMMANDS.values() for line in (command.epilog or "").splitlines()]
    lines = [line for line in lines if line.startswith("nanovllm ") and not line.startswith(WITH_LARGE_MODELS)]
    lines = [line for line in lines if ENDLESS not in line]
    assert len(lines) > 10
    for line in lines:
        line = line.replace("--request 3", "--request a")
        assert run_line(line).code == 0, line


def test_the_page_names_every_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for words in COMMANDS:
        assert words[-1] in text
