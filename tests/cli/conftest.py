"""The command, run in this process; a workload and traces to run it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanovllm.cli.main import main
from tests.llm.conftest import model_path

__all__ = ["model_path"]


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


RunCommand = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Runs ``nanovllm`` with these arguments."""

    def run_command(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run_command


@pytest.fixture(scope="session")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few requests; the third finds a prefix of the first in the cache."""
    path = tmp_path_factory.mktemp("cli") / "load.jsonl"
    path.write_text(
        '{"id": "a", "prompt_len": 40, "prefix": "p", "prefix_len": 32, "max_tokens": 12}\n'
        '{"id": "b", "prompt_len": 30, "max_tokens": 20, "output_len": 5}\n'
        '{"id": "c", "prompt_len": 41, "prefix": "p", "prefix_len": 32, "max_tokens": 3, "arrival_step": 4}\n'
    )
    return path


@pytest.fixture(scope="session")
def trace(workload: Path) -> Path:
    """The trace of a simulation of it."""
    path = workload.with_name("trace.jsonl")
    assert main(["simulate", str(workload), "--kvcache-block-size", "16", "--trace", str(path), "--json"]) == 0
    return path
