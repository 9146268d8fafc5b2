"""The roofline against real engines on a real H200: Qwen3-0.6B in bf16, vLLM 0.22.1 and nano-vLLM bb823b3.

Nothing was tuned to these figures. They are tokens generated a second in one ``generate`` call over token ids.
"""

from __future__ import annotations

from random import Random

import pytest

from nanovllm.config import Config
from sim import simulate
from sim.workload import WorkloadRequest


def bench256() -> list[WorkloadRequest]:
    rng = Random(0)
    prompts = [[rng.randint(0, 10_000) for _ in range(rng.randint(100, 1024))] for _ in range(256)]
    return same_order(prompts, [rng.randint(100, 1024) for _ in range(256)])


def batch_of(num_requests: int, prompt_len: int, output_len: int) -> list[WorkloadRequest]:
    rng = Random(1)
    prompts = [[rng.randint(0, 10_000) for _ in range(prompt_len)] for _ in range(num_requests)]
    return same_order(prompts, [output_len] * num_requests)


def same_order(prompts: list[list[int]], output_lens: list[int]) -> list[WorkloadRequest]:
    return [
        WorkloadRequest(id=i, prompt=prompt, max_tokens=output_len, ignore_eos=True)
        for i, (prompt, output_len) in enumerate(zip(prompts, output_lens, strict=True))
    ]


@pytest.mark.parametrize(
    ("load", "vllm_tokens_per_s", "tolerance"),
    [(bench256(), 23_301, 0.10), (batch_of(16, 512, 256), 7_697, 0.30), (batch_of(1, 128, 256), 600, 0.30)],
    ids=["256 requests", "16 requests", "one request"],
)
def test_the_roofline_with_host_time_is_near_vllm(
    load: list[WorkloadRequest], vllm_tokens_per_s: float, tolerance: float
) -> None:
    result = simulate(Config(), load, gpu="h200", model="qwen3-0.6b", record=False)
    num_tokens = sum(request.max_tokens for request in load)
    assert num_tokens / result.time_s == pytest.approx(vllm_tokens_per_s, rel=tolerance)
