"""How large the KV pool is, and what is said when it cannot be."""

from __future__ import annotations

import pytest
import torch

from nanovllm.config import Config
from nanovllm.errors import MemoryPoolError
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.kv_cache import CPU_POOL_BYTES, allocate_pool, block_bytes, cpu_num_blocks, num_blocks_within

SPEC = ModelSpec.preset("smollm2-135m")
CPU = torch.device("cpu")


def test_bytes_of_a_block() -> None:
    assert block_bytes(SPEC, 16, torch.bfloat16) == 16 * SPEC.kv_bytes_per_token
    assert block_bytes(SPEC, 16, torch.float32) == 32 * SPEC.kv_bytes_per_token


def test_pool_is_laid_out_as_documented() -> None:
    pool = allocate_pool(SPEC, 5, 4, torch.float16, CPU)
    assert pool.shape == (2, 30, 5, 4, 3, 64)
    assert pool.is_contiguous()
    assert pool.nbytes == 5 * block_bytes(SPEC, 4, torch.float16)
    assert not pool.any()


def test_cpu_budget() -> None:
    config = Config(max_model_len=4096, kvcache_block_size=256)
    assert cpu_num_blocks(config, CPU_POOL_BYTES // 100) == 100
    assert cpu_num_blocks(config, CPU_POOL_BYTES) == 16  # one sequence always fits


def test_blocks_within_a_budget() -> None:
    config = Config(max_model_len=1000, kvcache_block_size=256)
    assert num_blocks_within(4095, config, 1000) == 4
    with pytest.raises(MemoryPoolError) as caught:
        num_blocks_within(3 * 2**30, config, 2**30)
    assert str(caught.value) == (
        "the KV pool has room for 3 blocks of 256 tokens, but one sequence of max_model_len=1000 needs 4: 1.00 GiB "
        "are missing; raise gpu_memory_utilization=0.9, or lower max_model_len or max_num_batched_tokens"
    )
    with pytest.raises(MemoryPoolError, match=r"room for 0 blocks .* 5.00 GiB are missing"):
        num_blocks_within(-(2**30), config, 2**30)


@pytest.mark.parametrize("num_blocks", [10**6, 10**12])
def test_more_than_the_machine_has(num_blocks: int) -> None:
    with pytest.raises(MemoryPoolError) as caught:
        allocate_pool(SPEC, num_blocks, 256, torch.float32, CPU)
    assert str(caught.value).startswith(f"a KV pool of {num_blocks} blocks of 256 tokens needs ")
    assert str(caught.value).endswith(" GiB more than there are on cpu: lower num_kvcache_blocks")
