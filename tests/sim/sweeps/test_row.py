"""A row tells what the simulator tells, and a cell that fails is a row too."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from nanovllm.config import Config
from nanovllm.trace.metrics.slo import Slo
from sim import simulate
from sim.calibration import write_calibration
from sim.generators import independent_requests, poisson, uniform
from sim.sweeps import Sweep, run_cell
from sim.sweeps.figures import FIGURES
from sim.sweeps.row import WALL
from sim.sweeps.settings import SLO_NAMES, TYPES
from sim.workload import WorkloadRequest, write_workload
from tests.sim.comparison_files import example_calibration
from tests.sim.sweeps.small import SETTINGS, small_sweep


def row_of(**settings: Any) -> dict[str, Any]:
    return run_cell(Sweep(settings={**SETTINGS, **settings}).cells()[0])


def test_a_row_has_the_figures_of_the_simulation() -> None:
    row = row_of(max_num_seqs=2, policy="mixed", slo_ttft=0.01)
    load = list(
        independent_requests(8, prompt_len=uniform(4, 20), output_len=uniform(2, 8), arrivals=poisson(100.0), seed=0)
    )
    config = Config(kvcache_block_size=4, num_kvcache_blocks=40, max_num_seqs=2, policy="mixed")
    result = simulate(config, load)
    metrics = result.metrics
    assert (row["status"], row["error"]) == ("completed", None)
    assert metrics.time_to_first_token_s is not None
    assert row["time_to_first_token_p99_s"] == metrics.time_to_first_token_s.p99
    assert row["output_tokens_per_s"] == metrics.output_tokens_per_s
    assert row["num_steps"] == result.num_steps
    assert row["time_spent_host_s"] == result.time_spent.host_s
    assert (row["num_blocks"], row["num_gpus"]) == (40, 1)
    num_met = sum(bool(Slo(time_to_first_token_s=0.01).met_limits(request)) for request in metrics.requests)
    assert row["slo_attainment"] == num_met / 8


def test_a_row_is_a_function_of_its_cell() -> None:
    cell = small_sweep().cells()[3]
    first, second = run_cell(cell), run_cell(cell)
    assert first.pop(WALL) > 0
    assert second.pop(WALL) > 0
    assert first == second


def test_requests_are_the_same_whatever_else_varies() -> None:
    rows = [run_cell(cell) for cell in small_sweep().cells()]
    assert len({(row["prompt_tokens"], row["output_tokens"]) for row in rows}) == 1
    assert row_of(seed=1)["prompt_tokens"] != rows[0]["prompt_tokens"]


def test_replicas_are_told_together() -> None:
    row = row_of(replicas=3, router="least_loaded", tensor_parallel_size=2)
    assert row["status"] == "completed", row["error"]
    assert (row["num_completed"], row["num_gpus"]) == (8, 6)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"model": "llama-3.1-70b", "gpu": "l4", "num_kvcache_blocks": -1}, "no room for a KV block"),
        ({"tensor_parallel_size": 3}, "a divisor of this model's 16 heads"),
        ({"workload": "missing.jsonl"}, "missing.jsonl: there is no such file"),
        ({"calibration": "missing.json"}, "missing.json: "),
        ({"table": "missing"}, "is no directory"),
        ({"calibration": "card.json", "model": "qwen3-8b"}, "the calibration is one of"),
        ({"calibration": "card.json", "table": "missing"}, "not together with table"),
        ({"max_model_len": 10**6}, "the positions of this model"),
        ({"workload": "empty.jsonl"}, "empty.jsonl"),
        ({"workload": "text.jsonl"}, "text.jsonl:1: text is not allowed"),
        ({"workload": "steps.jsonl", "replicas": 2}, "arrival_step=3"),
    ],
)
def test_what_goes_wrong_is_one_line_of_the_row(
    settings: dict[str, Any], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").touch()
    write_calibration("card.json", example_calibration())
    write_workload("text.jsonl", [WorkloadRequest(id=0, text="hello", max_tokens=3)])
    write_workload("steps.jsonl", [WorkloadRequest(id=0, prompt_len=4, max_tokens=3, arrival_step=3)])
    base = {} if "workload" in settings else SETTINGS
    row = run_cell(Sweep(settings={**base, **settings}).cells()[0])
    assert row["status"] == "failed"
    assert part in row["error"]
    assert "\n" not in row["error"]
    assert all(row[name] is None for name in FIGURES)


def test_a_combination_that_cannot_be_fails_alone() -> None:
    sweep = small_sweep(policy=["prefill_first", "mixed"], max_num_seqs=[4], admit_by=["prompt", "chunk"])
    rows = [run_cell(cell) for cell in sweep.cells()]
    assert [row["status"] for row in rows] == ["completed", "failed", "completed", "completed"]
    assert "only for policy mixed" in rows[1]["error"]


def test_a_fault_is_told_with_its_kind_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no\ntime")

    monkeypatch.setattr("sim.sweeps.row._figures", fail)
    line = fail.__code__.co_firstlineno + 1
    assert row_of()["error"] == f"ZeroDivisionError: no time (test_row.py:{line})"


def test_no_figure_has_the_name_of_a_setting() -> None:
    assert not set(TYPES) & ({"cell", "status", "error", WALL} | set(FIGURES))
    assert set(SLO_NAMES.values()) == {field.name for field in fields(Slo)}
