"""The demo, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nanovllm.errors import ModelError
from sim.workload import read_workload
from tests.cli.conftest import RunCommand


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Its output directory, and how it went."""
    builtin_models = pytest.importorskip("nanovllm.runner.builtin_models", reason="needs torch")
    pytest.importorskip("transformers", reason="needs transformers")
    try:
        builtin_models.build_builtin_model("smollm2-135m")
    except ModelError as error:
        pytest.skip(str(error))
    output = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "nanovllm.cli", "demo", "--output", str(output)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return output, subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_it_shows_what_it_promises(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, result = demo
    assert result.returncode == 0, result.stdout + result.stderr
    for part in ("prefix hit", "a chunk of its prompt", "is preempted", "decisions identical", "predicted"):
        assert part in result.stdout
    assert "A computer program is a set of instructions" in result.stdout
    assert len(result.stdout.splitlines()) < 90


def test_it_ends_with_what_it_left(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    output, result = demo
    _, _, end = result.stdout.partition("Look closer")
    for name in ("timeline.png", "replay.html", "real.jsonl", "simulated.jsonl"):
        assert f"{output / name}  " in end
    assert (output / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert "<title>real.jsonl: replay</title>" in (output / "replay.html").read_text(encoding="utf-8")


def test_its_files_say_the_same(demo: tuple[Path, subprocess.CompletedProcess[str]], run: RunCommand) -> None:
    output, _ = demo
    assert len(read_workload(output / "workload.jsonl")) == 4
    assert run("trace", "diff", output / "real.jsonl", output / "simulated.jsonl").code == 0
    for name in ("real.jsonl", "simulated.jsonl"):
        assert run("trace", "check", output / name).code == 0
