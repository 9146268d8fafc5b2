"""Runs that were recorded on an H200, predicted by the calibration that comes along: no GPU is needed to see how close
it comes. ``tests/gpu/test_prediction.py`` measures both anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.calibration import read_calibration
from sim.comparison import compare, read_traced_run

RUNS = sorted((Path(__file__).parent / "h200").glob("*.nvtrace"))
MODEL = "qwen3-0.6b"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_recorded_run_is_predicted(path: Path) -> None:
    run, by_step = read_traced_run(path), read_traced_run(path, by_step=True)
    found, _ = compare(run, read_calibration(f"h200-{MODEL}").cost_model(MODEL), model=MODEL, by_step=by_step)
    assert found.first_difference is None
    assert abs(found.throughput_error) < 0.03
    assert abs(found.latencies["time per output token"].error("mean")) < 0.05
    assert abs(found.latencies["end to end"].error("mean")) < 0.05
    assert abs(found.latencies["time to first token"].error("p50")) < 0.10
