"""The roofline against real engines on a real H200: Qwen3-0.6B in bf16, vLLM 0.22.1 and nano-vLLM bb823b3.

Nothing was tuned to these figures. They are tokens generated a second in one ``generate`` call over token ids.
"""

from __future__ import annotations

import pytest

from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec
from sim import simulate
from sim.cost_models.bound import Bound
from sim.generators.reference import bench256, bs1, bs16, shared
from sim.workload import WorkloadRequest


@pytest.mark.parametrize(
    ("load", "vllm_tokens_per_s", "tolerance"),
    [(bench256(), 23_301, 0.10), (bs16(), 7_697, 0.30), (bs1(), 600, 0.30)],
    ids=["256 requests", "16 requests", "one request"],
)
def test_the_roofline_with_host_time_is_near_vllm(
    load: list[WorkloadRequest], vllm_tokens_per_s: float, tolerance: float
) -> None:
    result = simulate(Config(), load, gpu="h200", model="qwen3-0.6b", record=False)
    num_tokens = sum(request.max_tokens for request in load)
    assert num_tokens / result.time_s == pytest.approx(vllm_tokens_per_s, rel=tolerance)


def bound_tokens_per_s(load: list[WorkloadRequest]) -> float:
    model = ModelSpec.preset("qwen3-0.6b")
    bound = Bound(model=model, bandwidth_bytes_per_s=4.27e12, flops_per_s=708e12, shared_block_size=256)
    result = simulate(Config(num_kvcache_blocks=4_423), load, model=model, cost_model=bound, record=False)
    return sum(request.max_tokens for request in load) / result.time_s


@pytest.mark.parametrize(
    ("load", "tokens_per_s"), [(bench256(), 35_977), (bs1(), 3_502), (bs16(), 26_914)], ids=["bench256", "bs1", "bs16"]
)
def test_the_bound_is_that_of_a_count_by_hand(load: list[WorkloadRequest], tokens_per_s: float) -> None:
    assert bound_tokens_per_s(load) == pytest.approx(tokens_per_s, rel=0.001)


def test_a_shared_block_is_read_once() -> None:
    assert bound_tokens_per_s(shared()) > 7 * 16_731  # the bound if each sequence read its own prefix


def test_repetitions_differ_and_repeat() -> None:
    assert bench256(1) == bench256(1)
    assert bench256(1)[0].prompt != bench256(0)[0].prompt
    assert sum(request.max_tokens for request in bench256()) == 133_966
