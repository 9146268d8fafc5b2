"""The KV pool's memory: how many blocks there is room for, and the tensor that holds them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nanovllm.config import Config
from nanovllm.errors import MemoryPoolError
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.memory import gib, memory_bytes
from nanovllm.trace.state.pool import MAX_NUM_BLOCKS

CPU_POOL_BYTES = 2**30
"""What the pool takes on a CPU unless ``num_kvcache_blocks`` says otherwise: memory there is shared with all else,
so a fixed, moderate size serves better than a share of what is free. More if one sequence of ``max_model_len`` tokens
needs more."""


def block_bytes(spec: ModelSpec, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers, keys and values."""
    return 2 * spec.num_layers * block_size * spec.kv_size * dtype.itemsize


def allocate_pool(
    spec: ModelSpec, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The pool, ``[2, num_layers, num_blocks, block_size, num_kv_heads, head_dim]``, filled with zeros: a kernel may
    read the whole of a block and give what it must not see the weight 0, but 0 times the chance content of new memory
    could be no number.

    Raises ``MemoryPoolError`` if there is not enough memory.
    """
    shape = (2, spec.num_layers, num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
    needed_bytes = num_blocks * block_bytes(spec, block_size, dtype)
    free_bytes = memory_bytes(device)
    if needed_bytes <= free_bytes:
        if device.type == "cpu":
            # numpy takes zeros that cost neither time nor memory before they are used; torch writes each of them.
            return torch.from_numpy(np.zeros(needed_bytes, dtype=np.uint8)).view(dtype).view(shape)
        return torch.zeros(shape, dtype=dtype, device=device)
    raise MemoryPoolError(
        f"a KV pool of {num_blocks} blocks of {block_size} tokens needs {gib(needed_bytes)}, "
        f"{gib(needed_bytes - free_bytes)} more than there are on {device}: lower num_kvcache_blocks"
    )


def cpu_num_blocks(config: Config, bytes_per_block: int) -> int:
    """Blocks of the pool on a CPU: see ``CPU_POOL_BYTES``."""
    return min(max(CPU_POOL_BYTES // bytes_per_block, _blocks_per_sequence(config)), MAX_NUM_BLOCKS)


def num_blocks_within(budget_bytes: int, config: Config, bytes_per_block: int) -> int:
    """Blocks that fit ``budget_bytes``. Raises ``MemoryPoolError`` if one sequence of ``max_model_len`` does not."""
    num_blocks = max(budget_bytes, 0) // bytes_per_block
    needed = _blocks_per_sequence(config)
    if num_blocks < needed:
        missing_bytes = needed * bytes_per_block - budget_bytes
        raise MemoryPoolError(
            f"the KV pool has room for {num_blocks} blocks of {config.kvcache_block_size} tokens, but one sequence of "
            f"max_model_len={config.max_model_len} needs {needed}: {gib(missing_bytes)} are missing; raise "
            f"gpu_memory_utilization={config.gpu_memory_utilization}, or lower max_model_len or "
            f"max_num_batched_tokens"
        )
    return min(num_blocks, MAX_NUM_BLOCKS)


def _blocks_per_sequence(config: Config) -> int:
    return -(-config.max_model_len // config.kvcache_block_size)
