"""``nanovllm calibrate`` on a CPU, with a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.calibration import read_calibration
from tests.cli.conftest import RunCommand

pytest.importorskip("torch", reason="needs torch")


def test_a_calibration_is_made_and_used(run: RunCommand, model_path: Path, workload: Path, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    options = ("--device", "cpu", "--kvcache-block-size", 16, "--num-kvcache-blocks", 80, "--max-num-seqs", 8)
    limits = ("--max-num-batched-tokens", 300, "--max-model-len", 512, "--num-threads", 1)
    outcome = run("calibrate", "--model", model_path, "-o", path, *options, *limits)
    assert outcome.code == 0
    assert "held out" in outcome.out
    calibration = read_calibration(path)
    assert calibration.model == model_path.name.lower()
    assert calibration.num_blocks == 80
    outcome = run("simulate", workload, "--model", model_path, "--calibration", path, "--json")
    assert (outcome.code, outcome.err) == (0, "")


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(run: RunCommand, tmp_path: Path) -> None:
    outcome = run("calibrate", "--dummy-weights", "no such model", "-o", tmp_path / "nowhere" / "card.json")
    assert outcome.code == 2
    assert outcome.err == f"error: {tmp_path}/nowhere/card.json: cannot be written: No such file or directory\n"


def test_a_model_is_needed(run: RunCommand, tmp_path: Path) -> None:
    outcome = run("calibrate", "-o", tmp_path / "card.json")
    assert outcome.code == 2
    assert outcome.err == "error: model='' is not allowed: the model to measure is needed, or dummy_weights\n"
