"""Runs of vLLM as files tell of them: read, refused, and predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanovllm.errors import TraceError
from nanovllm.model_spec import ModelSpec
from sim.comparison import compare, read_vllm_run
from sim.cost_models import Table
from sim.cost_models.latency_tables import read_latency_tables
from tests.sim.comparison_files import write_vllm_run
from tests.sim.latency_files import write_tables

SHARED = Path(__file__).parents[3] / "shared" / "data" / "vllm_rtxpro6000_llama31_8b"


def test_a_run_of_vllm_is_read_and_compared(tmp_path: Path) -> None:
    run = read_vllm_run(write_vllm_run(write_tables(tmp_path)), num_blocks=50)
    assert [row.time_to_first_token_s for row in run.requests] == pytest.approx([0.1, 0.1, 0.1])
    assert [row.time_per_output_token_s for row in run.requests] == [pytest.approx(0.01), None, pytest.approx(0.01)]
    assert [request.arrival for request in run.workload] == [0.0, 0.25, 1.0]
    assert (run.config.max_num_seqs, run.config.max_num_batched_tokens, run.config.policy) == (4, 32, "mixed")
    spec = ModelSpec.preset("llama-3.1-8b")
    comparison, rows = compare(run, Table.of_vllm(read_latency_tables(tmp_path), spec, 4), model=spec)
    assert (comparison.num_requests, comparison.num_unpaired, comparison.same_decisions) == (3, 0, None)
    assert comparison.step_times == {}
    assert {row.request: row.hit_tokens for row in rows} == {0: 0, 1: 0, 2: 32}
    assert comparison.real_tokens_per_s == pytest.approx(9 / 1.12)


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("real_requests.jsonl", {"first_token_ts": 1.0}, r"requests.jsonl:1: queued_ts, first_token_ts and last_token"),
        ("real_requests.jsonl", {"queued_ts": -1.0}, r"requests.jsonl:1: queued_ts=-1.0 is not allowed"),
        ("real_requests.jsonl", {"output_toks": 6}, r"requests.jsonl:1: input_toks or output_toks is not that of"),
        ("workload.jsonl", {"input_tok_ids": []}, r"workload.jsonl:1: input_tok_ids=\[\] is not allowed"),
        ("workload.jsonl", {"arrival_time_ns": 10**12}, r"workload.jsonl:2: the request came before the one above"),
    ],
)
def test_an_impossible_run_of_vllm_is_one_clear_line(
    tmp_path: Path, name: str, change: dict[str, Any], problem: str
) -> None:
    path = write_vllm_run(tmp_path) / name
    first, *others = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), **change}), *others]), encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        read_vllm_run(tmp_path, num_blocks=50)


def test_the_number_of_gpus_of_vllm_is_told(tmp_path: Path) -> None:
    assert read_vllm_run(write_vllm_run(tmp_path), num_blocks=50).config.tensor_parallel_size == 1
    path = tmp_path / "real_meta.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["engine_kwargs"]["tensor_parallel_size"] = 2
    path.write_text(json.dumps(settings), encoding="utf-8")
    assert read_vllm_run(tmp_path, num_blocks=50).config.tensor_parallel_size == 2


@pytest.mark.parametrize("number", [-4, 0, 10**30, None])
def test_impossible_settings_of_vllm_are_one_clear_line(tmp_path: Path, number: int | None) -> None:
    path = write_vllm_run(tmp_path) / "real_meta.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["engine_kwargs"]["max_num_seqs"] = number
    path.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(TraceError, match=r"real_meta.json: is no description of a vLLM run .*max_num_seqs"):
        read_vllm_run(tmp_path, num_blocks=50)


def test_an_incomplete_run_of_vllm_is_one_clear_line(tmp_path: Path) -> None:
    path = write_vllm_run(tmp_path) / "real_requests.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:2]), encoding="utf-8")
    with pytest.raises(TraceError, match=r"tells of 2 requests, but the workload has 3"):
        read_vllm_run(tmp_path, num_blocks=50)
    (tmp_path / "real_meta.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TraceError, match=r"real_meta.json: is no description of a vLLM run"):
        read_vllm_run(tmp_path, num_blocks=50)
    (tmp_path / "real_meta.json").unlink()
    with pytest.raises(TraceError, match=r"real_meta.json: cannot be read: No such file"):
        read_vllm_run(tmp_path, num_blocks=50)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the recorded run of vLLM 0.19, ../shared/data")
def test_a_real_run_of_vllm_is_predicted() -> None:
    """300 ShareGPT requests on an RTX PRO 6000. No number of the model was fitted to this run."""
    run = read_vllm_run(SHARED, num_blocks=36_578)
    spec = ModelSpec.preset("llama-3.1-8b")
    cost_model = Table.of_vllm(read_latency_tables(SHARED), spec, run.config.max_num_seqs)
    comparison, _ = compare(run, cost_model, model=spec)
    assert comparison.num_unpaired == 0
    limits = {"time to first token": (0.04, 0.10), "time per output token": (0.015, 0.02), "end to end": (0.015, 0.02)}
    for name, (of_mean, of_each) in limits.items():
        pair = comparison.latencies[name]
        assert abs(pair.error("mean")) < of_mean, name
        assert pair.mean_absolute_error is not None
        assert pair.mean_absolute_error < of_each, name
    assert abs(comparison.throughput_error) < 0.015
