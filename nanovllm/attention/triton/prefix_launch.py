"""Launching the prefix kernel: a plan that lies in fixed memory, so that a CUDA graph finds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from nanovllm.attention.triton.launch_parameters import PrefixParameters, prefix_parameters
from nanovllm.attention.triton.pool import block_size_of
from nanovllm.attention.triton.prefix import prefix_kernel
from nanovllm.attention.triton.prefix_groups import PrefixItem, cut_into_items, find_prefix_groups

MAX_PARTS = 8
"""Most parts that the shared tokens of one sequence are computed in."""


@dataclass(frozen=True)
class PrefixStep:
    """What ``DecodeAttention`` needs to know of the prefixes; the tensors stay the same from step to step."""

    lens: Tensor
    """``[max_seqs]`` int32: leading tokens of each sequence that are attended to as shared ones."""
    num_parts: Tensor
    """``[max_seqs]`` int32: parts that they are computed in."""
    out: Tensor
    """``[MAX_PARTS, max_seqs, num_heads, head_dim]`` float32: the parts' results."""
    lse: Tensor
    """``[MAX_PARTS, max_seqs, num_heads]`` float32: their log-sum-exp, base 2."""

    @property
    def max_seqs(self) -> int:
        """The most sequences of a step."""
        return len(self.lens)


class PrefixAttention:
    """Attention of decoding sequences to the tokens that they share."""

    def __init__(
        self,
        shape: HeadShape,
        *,
        max_seqs: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        parameters: PrefixParameters | None = None,
    ) -> None:
        """``shape``: the heads on this card; ``max_seqs``: the most sequences of a step; ``dtype``: of the pool."""
        self.shape = shape
        self.block_size = block_size
        self.parameters = parameters or prefix_parameters(shape, dtype.itemsize, device)
        self._members_per_item = max(self.parameters.rows // shape.group, 1)
        # At most one group begins with each sequence, and a level of groups holds each sequence once.
        max_row_tiles = MAX_PARTS * -(-max_seqs // self._members_per_item) + max_seqs
        sizes = (1, MAX_PARTS * max_row_tiles * len(PrefixItem._fields), MAX_PARTS * max_seqs, max_seqs, max_seqs)
        self._plan = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        self._num_items, self._items, self._members, lens, num_parts = self._plan.split(sizes)
        parts = (MAX_PARTS, max_seqs, shape.num_heads)
        self.step = PrefixStep(
            lens=lens,
            num_parts=num_parts,
            out=torch.empty(*parts, shape.head_dim, dtype=torch.float32, device=device),
            lse=torch.empty(parts, dtype=torch.float32, device=device),
        )

    def plan(
        self,
        block_tables: NDArray[np.integer],
        context_lens: NDArray[np.integer],
        *,
        min_saved_tokens: int = 4096,
    ) -> int:
        """Find what the sequences share, and copy it to the card. To be called when the batch changes; while it only
        grows by a token each step, the plan stays right.

        ``block_tables`` ``[num_seqs, max_blocks]``, ``context_lens`` ``[num_seqs]``: on the host, the newest token
        included. Returns how many tokens' keys and values need not be read, for each step and layer; 0, without a plan,
        if that is less than ``min_saved_tokens``: then the launch costs more than it saves.
        """
        groups = find_prefix_groups(block_tables, context_lens, self.block_size, max_levels=MAX_PARTS)
        saved_tokens = sum(group.saved_tokens for group in groups)
        if saved_tokens < min_saved_tokens:
            return 0
        items, members, num_parts = cut_into_items(
            groups,
            len(context_lens),
            members_per_item=self._members_per_item,
            num_items=max(self.parameters.num_programs // self.shape.num_kv_heads, 1),
            max_parts=MAX_PARTS,
            tile=self.parameters.tile,
        )
        host = np.zeros(len(self._plan), dtype=np.int32)
        views = np.split(host, np.cumsum([len(part) for part in self._parts_of_plan()])[:-1])
        views[0][0] = len(items)
        views[1][: len(items) * len(PrefixItem._fields)] = np.array(items, dtype=np.int32).ravel()
        views[2][: len(members)] = members
        for group in groups:
            views[3][group.members] = group.end_token
        views[4][: len(num_parts)] = num_parts
        plan = torch.from_numpy(host)
        self._plan.copy_(plan.pin_memory() if self._plan.is_cuda else plan, non_blocking=True)
        return saved_tokens

    def _parts_of_plan(self) -> tuple[Tensor, ...]:
        return self._num_items, self._items, self._members, self.step.lens, self.step.num_parts

    def attend(
        self,
        qkv: Tensor,
        keys: Tensor,
        values: Tensor,
        transform: HeadTransform,
        context_lens: Tensor,
        block_tables: Tensor,
        *,
        pdl: bool = False,
    ) -> None:
        """Compute all parts of one layer into ``step.out`` and ``step.lse``: one launch, before ``decode_kernel``'s.

        Tensors as in ``DecodeAttention``; the pool is only read.
        """
        shape, parameters = self.shape, self.parameters
        assert block_size_of(keys, values) == self.block_size, "the plan is in blocks of block_size"
        prefix_kernel[(parameters.num_programs,)](
            qkv,
            transform.q_norm,
            transform.cos,
            transform.sin,
            keys,
            values,
            self.step.out,
            self.step.lse,
            self._num_items,
            self._items,
            self._members,
            block_tables,
            context_lens,
            self.step.max_seqs,
            transform.eps,
            shape.scale,
            keys.stride(0),
            keys.stride(1),
            keys.stride(2),
            block_tables.stride(0),
            NUM_KV_HEADS=shape.num_kv_heads,
            GROUP=shape.group,
            ROWS=max(parameters.rows, triton.next_power_of_2(shape.group)),
            HEAD_DIM=shape.head_dim,
            HALF_UP=shape.half_up,
            BLOCK_SIZE=self.block_size,
            TILE=parameters.tile,
            NORM=transform.q_norm is not None,
            NUM_STAGES=parameters.num_stages,
            PDL=pdl,
            **launch_options(parameters.num_warps, pdl),
        )
