"""How many KV blocks fit beside the weights."""

from __future__ import annotations

from nanovllm.config import Config
from nanovllm.errors import MemoryPoolError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.state.pool import MAX_NUM_BLOCKS
from sim.hardware import GPU

RESERVED_BYTES = 2**30
"""Assumed to be taken by the CUDA context, the libraries' workspaces and the captured graphs."""


def activation_bytes(config: Config, model: ModelSpec) -> int:
    """The most that a step's activations take on one GPU: at the widest place of a layer the hidden state, its
    residual and the MLP's gate, up and product stand side by side for each token of the budget; the logits of
    ``max_num_seqs`` sequences stand as 32-bit numbers, twice (as they are, and while tokens are drawn)."""
    share = model.share_of(config.tensor_parallel_size)
    num_values = 2 * share.hidden_size + 3 * share.intermediate_size
    logits_bytes = 2 * 4 * config.max_num_seqs * share.vocab_size
    return config.max_num_batched_tokens * num_values * model.dtype_bytes + logits_bytes


def num_kv_blocks_that_fit(config: Config, model: ModelSpec, gpu: GPU) -> int:
    """Blocks of the KV pool on each of ``config.tensor_parallel_size`` GPUs, which share the heads of a block
    (see ``ModelSpec.share_of``).

    ``gpu_memory_utilization`` of the card is used. Never more than ``MAX_NUM_BLOCKS``. Raises ``MemoryPoolError`` if
    not even one is left.
    """
    usable_bytes = gpu.memory_bytes * config.gpu_memory_utilization
    share = model.share_of(config.tensor_parallel_size)
    weight_bytes = share.weight_bytes
    other_bytes = activation_bytes(config, model) + RESERVED_BYTES
    block_bytes = config.kvcache_block_size * share.kv_bytes_per_token
    num_blocks = int((usable_bytes - weight_bytes - other_bytes) // block_bytes)
    if num_blocks < 1:
        raise MemoryPoolError(
            f"gpu={gpu.name!r} has {gpu.memory_bytes / 1e9:.1f} GB, of which gpu_memory_utilization="
            f"{config.gpu_memory_utilization} may be used, but the weights take {weight_bytes / 1e9:.1f} GB, "
            f"activations and CUDA {other_bytes / 1e9:.1f} GB: no room for a KV block; raise tensor_parallel_size or "
            f"lower max_num_batched_tokens"
        )
    return min(num_blocks, MAX_NUM_BLOCKS)
