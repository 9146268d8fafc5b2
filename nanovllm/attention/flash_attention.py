"""Paged attention by the package flash-attn (Dao 2023, arXiv:2307.08691), for NVIDIA cards from Ampere on.

Its two calls that read a paged pool are used: one for sequences of any lengths, one for a token each, which can cut a
context into parts that are read at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache
from torch import Tensor

from nanovllm.attention.interface import AttentionInputs, StepAttention
from nanovllm.attention.to_device import to_device
from nanovllm.attention.torch_attention import TorchAttention

BLOCK_SIZE_UNIT = 256
"""What block sizes are multiples of."""
HEAD_DIM_UNIT = 8
"""What head sizes are multiples of."""
MAX_HEAD_DIM = 256
DTYPES = (torch.bfloat16, torch.float16)


class FlashAttention:
    """The ``Attention`` protocol on flash-attn."""

    def __init__(self, pool: Tensor, *, num_splits: int = 0) -> None:
        """``pool``: the KV pool, ``[2, num_layers, num_blocks, block_size, num_kv_heads, head_dim]``. ``num_splits``:
        the parts that a context is cut into where each sequence computes one token; 0: as many as flash-attn guesses
        are best."""
        self._pool = pool
        self._num_splits = num_splits

    def begin_step(self, inputs: AttentionInputs) -> StepAttention:
        """Tell lengths to the device."""
        device = inputs.block_tables.device
        if max(inputs.query_lens) == 1:
            context_lens = to_device(np.array(inputs.context_lens, dtype=np.int32), device)
            return self.begin_decode(inputs.slot_mapping, context_lens, inputs.block_tables)
        row_ends = np.zeros((2, len(inputs.query_lens) + 1), dtype=np.int32)
        row_ends[:, 1:] = np.cumsum([inputs.query_lens, inputs.context_lens], axis=1)
        query_ends, context_ends = to_device(row_ends, device)
        return _FlashChunks(
            self._pool,
            inputs.slot_mapping,
            inputs.block_tables,
            query_ends,
            context_ends,
            max(inputs.query_lens),
            max(inputs.context_lens),
        )

    def begin_decode(self, slot_mapping: Tensor, context_lens: Tensor, block_tables: Tensor) -> StepAttention:
        """A step of one token a sequence, whose lengths the device knows: ``context_lens`` ``[num_seqs]`` int32, the
        rest as in ``AttentionInputs``. Nothing waits for the device, so that a CUDA graph can record the step."""
        return _FlashDecodes(self._pool, slot_mapping, block_tables, context_lens, self._num_splits)


@dataclass(frozen=True)
class _FlashChunks:
    """The ``StepAttention`` of sequences of any lengths."""

    pool: Tensor
    slot_mapping: Tensor
    block_tables: Tensor
    query_ends: Tensor
    """``[num_seqs + 1]`` int32: 0, then the tokens computed for the first sequence, the first two ..."""
    context_ends: Tensor
    """``[num_seqs + 1]`` int32: the same of their contexts."""
    max_query_len: int
    max_context_len: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = _store(self.pool, layer, self.slot_mapping, key, value)
        output: Tensor = flash_attn_varlen_func(
            query,
            keys,
            values,
            cu_seqlens_q=self.query_ends,
            cu_seqlens_k=self.context_ends,
            max_seqlen_q=self.max_query_len,
            max_seqlen_k=self.max_context_len,
            causal=True,  # the last token of a chunk sees all of its context, those before it each one less
            block_table=self.block_tables,
        )
        return output


@dataclass(frozen=True)
class _FlashDecodes:
    """The ``StepAttention`` of sequences that compute one token each."""

    pool: Tensor
    slot_mapping: Tensor
    block_tables: Tensor
    context_lens: Tensor
    """``[num_seqs]`` int32."""
    num_splits: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = _store(self.pool, layer, self.slot_mapping, key, value)
        output: Tensor = flash_attn_with_kvcache(
            query[:, None],  # [num_seqs, 1, num_heads, head_dim]
            keys,
            values,
            cache_seqlens=self.context_lens,
            block_table=self.block_tables,
            causal=True,
            num_splits=self.num_splits,
        )
        return output[:, 0]


def _store(pool: Tensor, layer: int, slot_mapping: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Put the new tokens into the pool; returns the layer's keys and values, ``[num_blocks, block_size, num_kv_heads,
    head_dim]`` each."""
    keys, values = pool[0, layer], pool[1, layer]
    keys.flatten(0, 1).index_copy_(0, slot_mapping, key)
    values.flatten(0, 1).index_copy_(0, slot_mapping, value)
    return keys, values


# ---- what the installed package can ----------------------------------------------------------------------------

_PROBED_LENGTHS = ((1, 300), (40, 300))
"""Tokens computed and tokens of context: a decode step and a chunk."""
_SHARPNESS = 4.0
"""Makes each token attend to a few others, so that results have size 1."""
_TOLERANCE = 0.1
"""Far above what rounding makes of numbers of size 1, far below what a kernel for other heads or types does."""


def find_obstacle(head_dim: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """What keeps the installed package from computing attention over heads of this size and type, in words; None:
    nothing. Builds differ in the cards, head sizes and types that they hold kernels for, so two small steps are
    computed, and compared to ``TorchAttention``."""
    what = f"heads of {head_dim} {str(dtype).removeprefix('torch.')} numbers"
    rng = torch.Generator().manual_seed(0)
    pool = torch.randn(2, 1, 2, BLOCK_SIZE_UNIT, 1, head_dim, generator=rng).to(device, dtype)
    for query_len, context_len in _PROBED_LENGTHS:
        query, key, value = (
            torch.randn(query_len, num_heads, head_dim, generator=rng).to(device, dtype) for num_heads in (2, 1, 1)
        )
        inputs = AttentionInputs(
            query_lens=(query_len,),
            context_lens=(context_len,),
            slot_mapping=torch.arange(context_len - query_len, context_len, device=device),
            block_tables=torch.tensor([[0, 1]], dtype=torch.int32, device=device),
            block_size=BLOCK_SIZE_UNIT,
        )
        expected = TorchAttention(pool.clone()).begin_step(inputs)(0, _SHARPNESS * query, key, value)
        try:
            output = FlashAttention(pool).begin_step(inputs)(0, _SHARPNESS * query, key, value)
        except RuntimeError as error:
            return f"the installed flash-attn cannot compute {what}: {str(error).splitlines()[0]}"
        if not torch.allclose(output, expected, rtol=0, atol=_TOLERANCE):
            return f"the installed flash-attn computes {what} wrongly: it was built without kernels for them"
    return None
