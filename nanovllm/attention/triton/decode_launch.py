"""Launching the decode kernels: the memory that their programs share, and a step's plan."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.attention.triton.decode import decode_kernel
from nanovllm.attention.triton.decode_plan import SHARES_AT_ONCE, plan_decode_kernel
from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from nanovllm.attention.triton.launch_parameters import DECODE_BATCHES, DecodeParameters, decode_parameters
from nanovllm.attention.triton.pool import block_size_of
from nanovllm.attention.triton.prefix_launch import PrefixStep


@dataclass(frozen=True)
class DecodeStep:
    """A decode step that has been planned."""

    context_lens: Tensor
    """``[num_seqs]`` int32: tokens of each context, the one that is computed included."""
    block_tables: Tensor
    """``[num_seqs, max_blocks]`` int32."""
    prefix: PrefixStep | None
    parameters: DecodeParameters


class DecodeAttention:
    """Attention of sequences that compute one token each, over a paged pool.

    All memory but the outputs is taken once, so that launches can be recorded in a CUDA graph: a replay reads the
    contexts and tables that lie in the step's tensors by then. Not for two streams at once.
    """

    def __init__(self, shape: HeadShape, *, max_seqs: int, dtype: torch.dtype, device: torch.device) -> None:
        """``shape``: the heads on this card; ``max_seqs``: the most sequences of a step; ``dtype``: of the pool."""
        self.shape = shape
        self.dtype = dtype
        self.max_seqs = max_seqs
        most_shares = max(
            decode_parameters(n, shape, dtype.itemsize, device, is_behind_prefix=is_behind).num_shares
            for n in DECODE_BATCHES
            for is_behind in (False, True)
        )
        self._reserve(most_shares, device)
        self._starts = torch.zeros(max_seqs + 1, dtype=torch.int32, device=device)
        self._share_tiles = torch.zeros(1, dtype=torch.int32, device=device)
        self._arrivals = torch.zeros(max_seqs, shape.num_kv_heads, dtype=torch.int32, device=device)
        self._no_prefix = torch.zeros(max_seqs, dtype=torch.int32, device=device)

    def _reserve(self, num_shares: int, device: torch.device) -> None:
        parts = (self.max_seqs + num_shares, self.shape.num_heads)
        self._first_seqs = torch.zeros(num_shares, dtype=torch.int32, device=device)
        self._part_out = torch.empty(*parts, self.shape.head_dim, dtype=torch.float32, device=device)
        self._part_lse = torch.empty(parts, dtype=torch.float32, device=device)

    def plan(
        self,
        context_lens: Tensor,
        block_tables: Tensor,
        *,
        prefix: PrefixStep | None = None,
        parameters: DecodeParameters | None = None,
    ) -> DecodeStep:
        """Cut the work of a step, on the card: one launch, before the first layer.

        ``context_lens`` ``[num_seqs]`` int32: tokens of each context, the one that is computed included. 0 stands for
        no sequence; such rows come last, nothing is computed for them, and their output stays as it is.
        ``block_tables`` ``[num_seqs, max_blocks]`` int32. ``prefix``: leading tokens that ``PrefixAttention`` attends
        to.
        """
        num_seqs = len(context_lens)
        assert num_seqs <= self.max_seqs, "there is memory for max_seqs sequences"
        device = context_lens.device
        parameters = parameters or decode_parameters(
            num_seqs, self.shape, self.dtype.itemsize, device, is_behind_prefix=prefix is not None
        )
        if parameters.num_shares > len(self._first_seqs):
            self._reserve(parameters.num_shares, device)
        plan_decode_kernel[(triton.cdiv(parameters.num_shares, SHARES_AT_ONCE.value),)](
            context_lens,
            self._no_prefix if prefix is None else prefix.lens,
            self._starts,
            self._first_seqs,
            self._share_tiles,
            num_seqs,
            NUM_SHARES=parameters.num_shares,
            SEQS=triton.next_power_of_2(num_seqs),
            TILE=parameters.tile,
            **launch_options(4, pdl=False),
        )
        return DecodeStep(context_lens, block_tables, prefix, parameters)

    def attend(
        self,
        step: DecodeStep,
        qkv: Tensor,
        keys: Tensor,
        values: Tensor,
        transform: HeadTransform,
        out: Tensor,
        *,
        pdl: bool = False,
    ) -> Tensor:
        """Store the new keys and values of one layer and attend: one launch.

        ``qkv`` ``[num_seqs, (num_heads + 2 num_kv_heads) * head_dim]``, contiguous: queries, keys and values of the
        newest tokens, not yet normalised and rotated. ``keys``, ``values``: one layer's pool ``[num_blocks,
        block_size, num_kv_heads, head_dim]``, blocks of a power of 2, at least 16 tokens; the newest tokens are stored
        in it. Writes and returns ``out`` ``[num_seqs, num_heads, head_dim]``, contiguous, of the pool's type.
        ``pdl``: see ``launch_options``; the plan and what it was made from are read before the wait. So one launch
        without it must lie between the plan's and this.
        """
        shape, parameters, prefix = self.shape, step.parameters, step.prefix
        assert qkv.dtype == keys.dtype == self.dtype, "all numbers are of the pool's type"
        assert qkv.is_contiguous(), "rows lie side by side"
        assert out.is_contiguous(), "rows lie side by side"
        assert prefix is None or prefix.max_seqs == self.max_seqs, "prefixes are planned for the same batches"
        decode_kernel[(parameters.num_shares * shape.num_kv_heads,)](
            qkv,
            transform.q_norm,
            transform.k_norm,
            transform.cos,
            transform.sin,
            keys,
            values,
            out,
            self._part_out,
            self._part_lse,
            self._arrivals,
            None if prefix is None else prefix.out,
            None if prefix is None else prefix.lse,
            None if prefix is None else prefix.num_parts,
            self._no_prefix if prefix is None else prefix.lens,
            step.block_tables,
            step.context_lens,
            self._starts,
            self._first_seqs,
            self._share_tiles,
            len(qkv),
            self.max_seqs,
            transform.eps,
            shape.scale,
            keys.stride(0),
            keys.stride(1),
            keys.stride(2),
            step.block_tables.stride(0),
            NUM_KV_HEADS=shape.num_kv_heads,
            GROUP=shape.group,
            GROUP_UP=triton.next_power_of_2(shape.group),
            ROWS=max(triton.next_power_of_2(shape.group), 16),
            HEAD_DIM=shape.head_dim,
            HALF_UP=shape.half_up,
            BLOCK_SIZE=block_size_of(keys, values),
            TILE=parameters.tile,
            NORM=transform.q_norm is not None,
            PREFIX=prefix is not None,
            PREFETCHES=parameters.prefetches,
            NUM_STAGES=parameters.num_stages,
            PDL=pdl,
            **launch_options(parameters.num_warps, pdl),
        )
        return out
