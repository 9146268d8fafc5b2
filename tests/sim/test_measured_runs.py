"""Runs that were recorded on an H200, predicted by the calibration that comes along: no GPU is needed to see how close
it comes. ``tests/gpu/test_prediction.py`` measures both anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nanovllm.config import Config
from nanovllm.trace.events import TraceStarted
from sim import simulate
from sim.calibration import read_calibration
from sim.comparison import compare, read_traced_run
from sim.outputs import RecordedOutputs
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


def test_what_is_simulated_is_the_engine_that_was_measured() -> None:
    """It looks ahead, as the recorded run did; docs/how-to/calibrate.md tells what waiting for each step would cost."""
    run = read_traced_run(next(path for path in RUNS if path.stem == "poisson-mixed"))
    cost_model = read_calibration(f"h200-{MODEL}").cost_model(MODEL)
    token_s = {}
    for lookahead in (None, True, False):
        config = replace(run.config, seed=0, lookahead=lookahead)
        result = simulate(config, run.workload, model=MODEL, cost_model=cost_model, outputs=RecordedOutputs(run.events))
        assert result.metrics.time_per_output_token_s is not None
        token_s[lookahead] = result.metrics.time_per_output_token_s.mean
    assert token_s[None] == token_s[True]
    assert token_s[False] / token_s[True] == pytest.approx(1.13, abs=0.01)


def test_a_simulation_tells_on_which_card_its_times_were_measured() -> None:
    cost_model = read_calibration(f"h200-{MODEL}").cost_model(MODEL)
    load = [WorkloadRequest(id=0, prompt_len=10, max_tokens=2)]
    for gpu in (None, "h200"):
        header = simulate(Config(), load, model=MODEL, gpu=gpu, cost_model=cost_model).events[0]
        assert isinstance(header, TraceStarted)
        assert (header.facts["hardware"], header.facts["lookahead"]) == ("NVIDIA H200", True)
