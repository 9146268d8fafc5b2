"""The roofline: each part against numbers worked out by hand, and the bounds that others measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError, MemoryPoolError
from nanovllm.model_config import DTYPE_BYTES
from nanovllm.model_spec import ModelSpec
from sim.cost_models import HostOverhead, Roofline, StepTime
from sim.hardware import GPU, GPUS, find_gpu, find_measured_gpu
from sim.memory import activation_bytes, num_kv_blocks_that_fit

QWEN = ModelSpec.preset("qwen3-0.6b")
LLAMA = ModelSpec.preset("llama-3.1-8b")
CARD = GPU(
    name="round numbers",
    memory_bytes=10**11,
    bandwidth_bytes_per_s=1e12,
    flops_per_s=1e15,
    float32_flops_per_s=1e14,
    link_bytes_per_s=1e11,
    source="made up",
    bandwidth_share=1.0,
    flops_share=0.5,
)


def scheduled(*parts: tuple[int, int], is_prefill: bool) -> ScheduledBatch:
    """A batch of sequences with so many tokens cached and so many scheduled."""
    seqs = []
    for num_cached, num_scheduled in parts:
        seq = Sequence([1] * (num_cached + num_scheduled))
        seq.num_cached_tokens, seq.num_scheduled_tokens = num_cached, num_scheduled
        seqs.append(seq)
    return ScheduledBatch(seqs, is_prefill)


def test_a_decode_step_reads_the_weights_once_and_all_kv() -> None:
    time = Roofline(model=QWEN, gpu=CARD).step_time(scheduled((99, 1), (299, 1), is_prefill=False))
    weights = 28 * ((2 * 2048 + 2 * 1024) * 1024 + 3 * 3072 * 1024) + 151_936 * 1024
    activations = 2 * 28 * (4 * 1024 + 2 * 2048 + 2 * 1024 + 3 * 3072) + 2 * (1024 + 151_936)
    assert time.weights_s == pytest.approx((weights + activations) * 2 / 1e12)
    assert time.kv_traffic_s == pytest.approx((400 + 2) * 114_688 / 1e12)
    assert (time.matmul_s, time.attention_s, time.communication_s) == (0, 0, 0)
    assert time.host_s == pytest.approx(126e-6 + 2 * 4e-6 + 28 * 32e-6)
    assert time.total_s == pytest.approx(time.weights_s + time.kv_traffic_s + time.host_s)


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_every_type_has_its_bytes_and_its_rate(dtype: str) -> None:
    model = replace(LLAMA, dtype=dtype)
    num_bytes, rate = (4, 0.5e14) if dtype == "float32" else (2, 0.5e15)
    decode = Roofline(model=model, gpu=CARD).step_time(scheduled((99, 1), is_prefill=False))
    assert decode.kv_traffic_s == pytest.approx(101 * 65_536 * num_bytes / 1e12)
    prefill = Roofline(model=model, gpu=CARD).step_time(scheduled((1000, 3000), is_prefill=True))
    matmul_flops = 3000 * LLAMA.matmul_flops_per_token + LLAMA.head_flops_per_token
    assert prefill.weights_s + prefill.matmul_s == pytest.approx(matmul_flops / rate)
    read_s = 4000 * 65_536 * num_bytes / 1e12
    assert prefill.attention_s == pytest.approx(LLAMA.attention_flops(3000, 4000) / rate - read_s)


def test_a_long_prefill_is_bound_by_arithmetic() -> None:
    time = Roofline(model=LLAMA, gpu=CARD).step_time(scheduled((1000, 3000), is_prefill=True))
    matmul_flops = 3000 * LLAMA.matmul_flops_per_token + LLAMA.head_flops_per_token
    assert time.weights_s + time.matmul_s == pytest.approx(matmul_flops / 0.5e15)
    read_s = 4000 * 131_072 / 1e12
    assert time.kv_traffic_s == pytest.approx(read_s + 3000 * 131_072 / 1e12)
    assert time.attention_s == pytest.approx(LLAMA.attention_flops(3000, 4000) / 0.5e15 - read_s)


def test_a_chunked_prompt_costs_the_same_attention_in_all() -> None:
    model = Roofline(model=LLAMA, gpu=CARD)

    def pairs_s(time: StepTime, num_kv_tokens: int) -> float:
        return time.attention_s + num_kv_tokens * 131_072 / 1e12

    whole = pairs_s(model.step_time(scheduled((0, 8192), is_prefill=True)), 8192)
    chunks = [model.step_time(scheduled((start, 2048), is_prefill=True)) for start in range(0, 8192, 2048)]
    assert sum(pairs_s(time, 2048 * (n + 1)) for n, time in enumerate(chunks)) == pytest.approx(whole)


def test_a_mixed_step_charges_its_decodes_and_its_chunks() -> None:
    model = Roofline(model=QWEN, gpu=CARD)
    mixed = model.step_time(scheduled((499, 1), (0, 64), is_prefill=True))
    decode = model.step_time(scheduled((499, 1), is_prefill=False))
    chunk = model.step_time(scheduled((0, 64), is_prefill=True))
    assert mixed.kv_traffic_s == pytest.approx(decode.kv_traffic_s + chunk.kv_traffic_s)
    assert max(decode.total_s, chunk.total_s) < mixed.total_s < decode.total_s + chunk.total_s


def test_tensor_parallelism_shares_the_work_and_pays_for_talking() -> None:
    batch = scheduled(*[(999, 1)] * 64, is_prefill=False)
    one, four = (Roofline(model=LLAMA, gpu=CARD, tensor_parallel_size=n).step_time(batch) for n in (1, 4))
    assert four.weights_s == pytest.approx(one.weights_s / 4, rel=0.02)  # hidden states are not shared
    assert four.kv_traffic_s == pytest.approx(one.kv_traffic_s / 4)
    hidden, logits = 64 * 4096 * 2, 64 * 128_256 * 2
    assert four.communication_s == pytest.approx((64 * 2 * hidden + logits) * 3 / 4 / 1e11 + 65 * 8e-6)
    assert one.communication_s == 0


@given(
    cached=st.lists(st.integers(0, 5000), min_size=1, max_size=8),
    new=st.integers(1, 2000),
    gpu=st.sampled_from(sorted(GPUS)),
)
def test_more_work_never_takes_less_time(cached: list[int], new: int, gpu: str) -> None:
    model = Roofline(model=QWEN, gpu=GPUS[gpu])
    parts = [(num, new) for num in cached]
    time = model.step_time(scheduled(*parts, is_prefill=True)).total_s
    assert 0 < time < model.step_time(scheduled(*parts, (0, 1), is_prefill=True)).total_s
    assert time <= model.step_time(scheduled(*[(num, new + 1) for num in cached], is_prefill=True)).total_s
    assert time <= model.step_time(scheduled(*[(num + 1, new) for num in cached], is_prefill=True)).total_s


def test_host_time_can_be_chosen() -> None:
    host = HostOverhead(step_s=1.0, sequence_s=0.25, layer_s=0.0)
    time = Roofline(model=QWEN, gpu=CARD, host=host).step_time(scheduled((9, 1), (9, 1), is_prefill=False))
    assert time.host_s == 1.5


def test_the_parts_add_up() -> None:
    time = StepTime(1, 2, 4, 8, 16, 32)
    assert time.total_s == 63
    assert time + time == StepTime(2, 4, 8, 16, 32, 64)
    assert (time + StepTime(is_extrapolated=True)).is_extrapolated


def test_cards_are_found_by_name() -> None:
    assert find_gpu("H200").memory_bytes == 143_771 * 2**20
    with pytest.raises(ConfigError, match="gpu='h300' is not allowed: one of b200, h200, h100"):
        find_gpu("h300")
    for gpu in GPUS.values():
        assert 0.5 < gpu.bandwidth_share <= 1
        assert 0.5 < gpu.flops_share <= 1
        assert gpu.source
        # All current cards do some hundred operations in the time of reading a byte; CUDA cores do fewer.
        assert 100 < gpu.flops_per_s / gpu.bandwidth_bytes_per_s < 450
        assert 1.5 * gpu.float32_flops_per_s < gpu.flops_per_s < 35 * gpu.float32_flops_per_s


def test_cards_are_found_by_what_cuda_calls_them() -> None:
    for name, gpu in GPUS.items():
        assert find_measured_gpu(gpu.device_name) == find_measured_gpu(name.upper()) == gpu
    for other in ("NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB", "cpu", ""):  # other memory, other speed
        assert find_measured_gpu(other) is None
    own = replace(CARD, device_name="NVIDIA A10")
    assert own.is_called("nvidia a10")
    assert own.is_called("Round numbers")
    assert not own.is_called("")
    assert not CARD.is_called("")


def test_the_pool_is_what_is_left_of_the_memory() -> None:
    config = Config(kvcache_block_size=16, max_num_batched_tokens=1000, max_num_seqs=10)
    activations = 1000 * (2 * 1024 + 3 * 3072) * 2 + 2 * 4 * 10 * 151_936
    assert activation_bytes(config, QWEN) == activations
    left = 0.9 * CARD.memory_bytes - QWEN.weight_bytes - activations - 2**30
    assert num_kv_blocks_that_fit(config, QWEN, CARD) == left // (16 * 114_688)


@pytest.mark.parametrize(("share", "num_blocks"), [(0.92, 36_695), (0.9, 35_716)])
def test_the_pool_is_close_to_that_of_a_real_engine(share: float, num_blocks: int) -> None:
    """vLLM 0.19 found room for 36,578 blocks, at its default of 0.92 of the memory (LLMServingSim 2.0's run); ours is
    0.9."""
    config = Config(kvcache_block_size=16, max_num_batched_tokens=2048, max_num_seqs=128, gpu_memory_utilization=share)
    assert num_kv_blocks_that_fit(config, LLAMA, GPUS["rtx-pro-6000"]) == num_blocks
    assert num_blocks == pytest.approx(36_578, rel=0.01 if share == 0.92 else 0.03)


def test_a_model_that_does_not_fit() -> None:
    large = ModelSpec.preset("llama-3.1-70b")
    with pytest.raises(MemoryPoolError, match=r"gpu='h100' has 85\.5 GB.*the weights take 141\.1 GB"):
        num_kv_blocks_that_fit(Config(), large, GPUS["h100"])
    assert num_kv_blocks_that_fit(Config(tensor_parallel_size=4), large, GPUS["h100"]) > 100


def test_several_gpus_hold_the_same_kv_head_where_they_outnumber_them() -> None:
    """Of 16 query and 8 KV heads, each of 16 GPUs has one: as much KV as with 8 GPUs, but fewer weights."""
    spec = ModelSpec.preset("qwen3-0.6b")
    shares = {size: spec.share_of(size) for size in (8, 16)}
    assert [share.num_kv_heads for share in shares.values()] == [1, 1]
    step = scheduled(*[(1000, 1)] * 64, is_prefill=False)
    by_size = {size: Roofline(model=spec, gpu=CARD, tensor_parallel_size=size).step_time(step) for size in (4, 8, 16)}
    assert by_size[4].kv_traffic_s == pytest.approx(2 * by_size[8].kv_traffic_s)
    assert by_size[8].kv_traffic_s == by_size[16].kv_traffic_s
    assert by_size[8].weights_s / 2 < by_size[16].weights_s < by_size[8].weights_s
    config = Config(kvcache_block_size=16, max_num_batched_tokens=1000, max_num_seqs=10, tensor_parallel_size=16)
    left = 0.9 * CARD.memory_bytes - shares[16].weight_bytes - activation_bytes(config, spec) - 2**30
    assert num_kv_blocks_that_fit(config, spec, CARD) == left // (16 * spec.kv_bytes_per_token // 8)


def test_a_roofline_of_a_size_that_no_engine_runs() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel_size=3 is not allowed: a divisor of this model's 16 heads"):
        Roofline(model=QWEN, gpu=CARD, tensor_parallel_size=3).step_time(scheduled((9, 1), is_prefill=False))
