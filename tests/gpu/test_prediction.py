"""A card is calibrated, and then predicted on loads that it was not calibrated with."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.trace.jsonl import TraceWriter
from sim.calibration import Calibration, calibrate, write_calibration
from sim.comparison import Comparison, compare, read_traced_run
from sim.cost_models import Sizes
from sim.generators import independent_requests, poisson, uniform
from sim.generators.reference import REFERENCE_LOADS
from sim.workload import Prompts, WorkloadRequest, to_requests

pytestmark = pytest.mark.gpu

MODEL = "qwen3-0.6b"
CONFIG = Config(dtype="bfloat16", device="cuda", max_model_len=4096)
FIGURES = ("mean", "p50", "p90", "p99")


@pytest.fixture(scope="module")
def runner() -> Iterator[ModelRunner]:
    runner = ModelRunner(CONFIG, spec=ModelSpec.preset(MODEL))
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def calibration(runner: ModelRunner, tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    start_s = time.perf_counter()
    found = calibrate(
        runner,
        runner.config,
        model=MODEL,
        vocab_size=runner.vocab_size,
        shape=runner.spec,
        reads_shared_blocks_once=runner.attention == "triton",
        sizes=Sizes(**runner.graph_sizes._asdict()),
    )
    path = tmp_path_factory.mktemp("calibration") / "card.json"
    write_calibration(path, found)
    told = [f"calibrated in {time.perf_counter() - start_s:.0f} s", path.read_text(encoding="utf-8")]
    write_report(told)
    return found


def poisson_load(repetition: int) -> list[WorkloadRequest]:
    arrivals = poisson(rate_per_s=20)
    lengths = uniform(100, 1024), uniform(100, 512)
    requests = independent_requests(
        200, prompt_len=lengths[0], output_len=lengths[1], arrivals=arrivals, seed=1 + repetition
    )
    return list(requests)


LOADS = {**REFERENCE_LOADS, "poisson": poisson_load, "short of blocks": REFERENCE_LOADS["bench256"]}
SHORT_OF_BLOCKS = 600


def record(runner: ModelRunner, load: str, policy: str, path: Path) -> None:
    """Run a load once to warm up, then once with other prompts into a trace."""
    config = replace(CONFIG, policy=policy)
    for repetition in (0, 1):
        prompts = Prompts(vocab_size=runner.vocab_size)
        requests = list(to_requests(LOADS[load](repetition), prompts))
        with TraceWriter(path) as writer:
            engine = Engine(config, runner, emit=writer.emit, vocab_size=runner.vocab_size)
            for _ in engine.run(requests):
                pass


@pytest.mark.parametrize("policy", ["prefill_first", "mixed"])
@pytest.mark.parametrize("load", ["bench256", "shared", "bs16", "poisson", "short of blocks"])
def test_a_run_is_predicted(
    runner: ModelRunner,
    calibration: Calibration,
    load: str,
    policy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if load == "short of blocks":
        monkeypatch.setattr(runner, "num_kv_blocks", SHORT_OF_BLOCKS)
    path = tmp_path / "run.jsonl"
    record(runner, load, policy, path)
    run, by_step = read_traced_run(path), read_traced_run(path, by_step=True)
    assert any(row.num_preemptions for row in run.requests) is (load == "short of blocks")
    found, _ = compare(run, calibration.cost_model(MODEL), model=MODEL, by_step=by_step)
    write_report(describe(f"{load}, {policy}", found))
    assert found.first_difference is None
    assert abs(found.throughput_error) < 0.03
    assert abs(found.latencies["time per output token"].error("mean")) < 0.05
    assert abs(found.latencies["end to end"].error("mean")) < 0.05
    assert abs(found.latencies["time to first token"].error("p50")) < 0.10


def describe(name: str, comparison: Comparison) -> list[str]:
    lines = [
        f"{name}: throughput {comparison.throughput_error:+.1%}, decisions {comparison.first_difference or 'same'}"
    ]
    for what, pair in {**comparison.latencies, **comparison.step_times}.items():
        errors = " ".join(f"{figure} {pair.error(figure):+.1%}" for figure in FIGURES)
        each = "" if pair.mean_absolute_error is None else f" each {pair.mean_absolute_error:.1%}"
        lines.append(f"  {what}: {1e3 * pair.real.mean:.3f} ms -> {1e3 * pair.simulated.mean:.3f}, {errors}{each}")
    return lines


def write_report(lines: list[str]) -> None:
    """To standard output, which pytest shows with ``-s`` and of tests that fail."""
    sys.stdout.write("\n".join(["", *lines, ""]))
