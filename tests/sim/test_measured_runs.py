"""Runs that were recorded on an H200, predicted by the calibration that comes along: no GPU is needed to see how close
it comes. ``tests/gpu/test_prediction.py`` measures both anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanovllm.config import Config
from nanovllm.trace.events import TraceStarted
from sim import simulate
from sim.calibration import read_calibration
from sim.comparison import compare, read_traced_run
from sim.workload import WorkloadRequest

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


def test_a_simulation_tells_on_which_card_its_times_were_measured() -> None:
    cost_model = read_calibration(f"h200-{MODEL}").cost_model(MODEL)
    load = [WorkloadRequest(id=0, prompt_len=10, max_tokens=2)]
    for gpu in (None, "h200"):
        header = simulate(Config(), load, model=MODEL, gpu=gpu, cost_model=cost_model).events[0]
        assert isinstance(header, TraceStarted)
        assert (header.facts["hardware"], header.facts["lookahead"]) == ("NVIDIA H200", True)
