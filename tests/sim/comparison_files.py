"""Small files for comparisons: a calibration with round numbers, and a recorded run of vLLM."""

from __future__ import annotations

import json
from pathlib import Path

from sim.calibration import Calibration
from sim.calibration.file import FitError
from sim.cost_models.fitted import (
    CONTEXT_KNOTS,
    TOKEN_KNOTS,
    Coefficients,
    HostCoefficients,
    RequestCoefficients,
    Sizes,
)
from sim.cost_models.shape import KINDS

DEVICE = Coefficients(
    step_s=1e-3,
    token_s=(1e-5,) * len(TOKEN_KNOTS),
    sequence_s=1e-5,
    kv_token_s=1e-8,
    shared_kv_token_s=0.0,
    chunk_pair_s=1e-9,
    context_s=(0.0,) * len(CONTEXT_KNOTS),
)
HOST = HostCoefficients(step_s=1e-4, sequence_s=1e-6, token_s=1e-7)


def example_calibration(model: str = "qwen3-0.6b") -> Calibration:
    """One that says the same of every kind of step."""
    error = FitError(num_fitted=8, num_held_out=2, mean=0.01, p90=0.02, worst=0.02, bias=0.0)
    return Calibration(
        model=model,
        backend="cuda, triton attention",
        facts={"device": "NVIDIA H200", "dtype": "bfloat16"},
        block_size=16,
        num_blocks=500,
        reads_shared_blocks_once=True,
        sizes=Sizes(),
        misfit=None,
        request=RequestCoefficients(),
        steps=[],
        device=dict.fromkeys(KINDS, DEVICE),
        host=dict.fromkeys(KINDS, HOST),
        errors=dict.fromkeys(KINDS, error),
    )


def write_vllm_run(directory: Path) -> Path:
    """Three requests of which the third shares its beginning with the first; each token takes a hundredth of a second,
    the first token a tenth."""
    prompts = [[*range(100, 140)], [*range(200, 220)], [*range(100, 132), *range(300, 310)]]
    outputs, arrivals_s = (5, 1, 3), (0.0, 0.25, 1.0)
    workload, rows = [], []
    for number, (prompt, num_outputs, arrival_s) in enumerate(zip(prompts, outputs, arrivals_s, strict=True)):
        sizes = {"input_toks": len(prompt), "output_toks": num_outputs}
        workload.append({**sizes, "arrival_time_ns": int(arrival_s * 1e9) + 7, "input_tok_ids": prompt})
        queued_s = 5000.0 + arrival_s
        times = {"queued_ts": queued_s, "first_token_ts": queued_s + 0.1}
        last_s = queued_s + 0.1 + 0.01 * (num_outputs - 1)
        rows.append({"request_id": f"bench-{number}", **sizes, **times, "last_token_ts": last_s})
    for name, lines in (("workload.jsonl", workload), ("real_requests.jsonl", rows)):
        (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    meta = {
        "model": "meta-llama/Llama-3.1-8B",
        "vllm_version": "0.19.0",
        "engine_kwargs": {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": None},
    }
    (directory / "real_meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return directory
