"""What a step tells the attention, and what every implementation of it does.

The KV pool is one tensor ``[2, num_layers, num_blocks, block_size, num_kv_heads, head_dim]``: keys at index 0,
values at 1. A layer's keys ``pool[0, layer]`` are contiguous, and so is a block in them: the layout that paged
kernels read. A *slot* is the place of one token: ``block * block_size + offset in the block``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class AttentionInputs:
    """Where a step's tokens lie in the KV pool; the same for all layers.

    The step computes ``num_tokens`` tokens of ``num_seqs`` sequences, those of a sequence side by side. A
    sequence's *context* are all its tokens up to the last one computed in this step; those before the first
    have their KV in the pool already. Prefill, chunked prefill and decode differ in these numbers only, and one
    step may hold them all.
    """

    query_lens: tuple[int, ...]
    """Tokens computed, for each sequence; at least 1."""
    context_lens: tuple[int, ...]
    """Tokens of context, for each sequence: never more, so that a chunk sees no KV that is not yet written."""
    slot_mapping: Tensor
    """``[num_tokens]`` int64: the slot that takes each computed token's key and value."""
    block_tables: Tensor
    """``[num_seqs, max_blocks]`` int32: the blocks of each sequence's context in order, then zeros."""
    block_size: int


class StepAttention(Protocol):
    """The attention of one step, called once by each layer."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Put ``key`` and ``value`` (``[num_tokens, num_kv_heads, head_dim]``, rotated) into the pool, then let
        each row of ``query`` (``[num_tokens, num_heads, head_dim]``) attend to the context of its sequence up to
        its own token. Returns ``[num_tokens, num_heads, head_dim]``. Query head ``i`` reads KV head
        ``i // (num_heads // num_kv_heads)``; scores are scaled by ``head_dim ** -0.5``.
        """
        ...


class Attention(Protocol):
    """One implementation, bound to one KV pool."""

    def begin_step(self, inputs: AttentionInputs) -> StepAttention:
        """Do once what all layers of the step share."""
        ...
