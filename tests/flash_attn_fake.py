"""flash-attn's two calls on a paged pool, in float64, with the checks that its C++ makes: for use without a card."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch
from torch import Tensor

_OURS = ("nanovllm.attention.flash_attention", "nanovllm.runner.flash_steps")
"""Modules that import flash-attn; the tests on a card must find them as if they had not been imported here."""


@contextmanager
def installed() -> Iterator[ModuleType]:
    """Let ``import flash_attn`` find the calls below."""
    fake = ModuleType("flash_attn")
    fake.__spec__ = ModuleSpec("flash_attn", loader=None)
    vars(fake).update(flash_attn_varlen_func=flash_attn_varlen_func, flash_attn_with_kvcache=flash_attn_with_kvcache)
    real = sys.modules.get("flash_attn")
    _forget_ours()
    sys.modules["flash_attn"] = fake
    try:
        yield fake
    finally:
        _forget_ours()
        del sys.modules["flash_attn"]
        if real is not None:
            sys.modules["flash_attn"] = real


def _forget_ours() -> None:
    for name in _OURS:
        parent, _, child = name.rpartition(".")
        sys.modules.pop(name, None)
        vars(sys.modules.get(parent, ModuleType(parent))).pop(child, None)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    block_table: Tensor,
) -> Tensor:
    _check_pool(q.shape[1:], k, v, block_table)
    query_ends, context_ends = _ends(cu_seqlens_q, len(block_table)), _ends(cu_seqlens_k, len(block_table))
    assert query_ends[-1] == len(q)
    out = torch.empty_like(q)
    for row, table in enumerate(block_table.tolist()):
        rows = slice(query_ends[row], query_ends[row + 1])
        context_len = context_ends[row + 1] - context_ends[row]
        assert rows.stop - rows.start <= max_seqlen_q
        assert context_len <= max_seqlen_k
        out[rows] = _attend(q[rows], _read(k, table, context_len), _read(v, table, context_len), softmax_scale, causal)
    return out


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor,
    block_table: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    num_splits: int = 0,
) -> Tensor:
    assert num_splits >= 0
    _check_pool(q.shape[2:], k_cache, v_cache, block_table)
    assert (cache_seqlens.dtype, cache_seqlens.shape) == (torch.int32, (len(q),))
    assert cache_seqlens.is_contiguous()
    assert len(block_table) == len(q)
    out = torch.empty_like(q)
    for row, (table, context_len) in enumerate(zip(block_table.tolist(), cache_seqlens.tolist(), strict=True)):
        keys, values = _read(k_cache, table, context_len), _read(v_cache, table, context_len)
        out[row] = _attend(q[row], keys, values, softmax_scale, causal)
    return out


def _check_pool(heads: torch.Size, keys: Tensor, values: Tensor, block_table: Tensor) -> None:
    assert keys.shape == values.shape
    assert keys.shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256"
    assert keys.stride(-1) == values.stride(-1) == 1
    assert heads[1] == keys.shape[3]
    assert heads[0] % keys.shape[2] == 0
    assert (block_table.dtype, block_table.stride(-1)) == (torch.int32, 1)


def _ends(cumulated: Tensor, num_seqs: int) -> list[int]:
    assert (cumulated.dtype, cumulated.shape) == (torch.int32, (num_seqs + 1,))
    assert cumulated.is_contiguous()
    ends: list[int] = cumulated.tolist()
    assert ends == sorted(ends)
    assert ends[0] == 0
    return ends


def _read(numbers: Tensor, table: list[int], context_len: int) -> Tensor:
    """``[context_len, num_kv_heads, head_dim]``."""
    block_size = numbers.shape[1]
    assert 0 < context_len <= len(table) * block_size
    return numbers[table[: -(-context_len // block_size)]].flatten(0, 1)[:context_len].double()


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float | None, causal: bool) -> Tensor:
    group = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query.double(), keys) * (scale or 1 / math.sqrt(query.shape[2]))
    if causal:  # aligned to the bottom right
        seen = torch.ones(len(query), len(keys), dtype=torch.bool).tril(len(keys) - len(query))
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).to(query.dtype)
