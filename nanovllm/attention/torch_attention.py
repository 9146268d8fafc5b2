"""Paged attention in plain torch: runs on every device, and is what the kernels are compared to.

Sequences that compute one token (decode) are attended to in one batch, their contexts padded to equal length.
Longer ones (chunks of prompts) are taken one by one, without padding.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from nanovllm.attention.interface import AttentionInputs


@dataclass(frozen=True)
class _Decodes:
    """The sequences that compute one token each."""

    rows: Tensor
    """``[n]`` int64: their tokens' rows among all of the step."""
    slots: Tensor
    """``[n, c]`` int64: the slots of their contexts, the last one repeated up to the longest context."""
    mask: Tensor
    """``[n, 1, 1, c]`` bool: False where a slot is repeated."""


@dataclass(frozen=True)
class _Chunk:
    """A sequence that computes several tokens."""

    first_row: int
    end_row: int
    slots: Tensor
    """``[c]`` int64: the slots of its context."""
    mask: Tensor | None
    """``[q, c]`` bool: what each token sees. None: the chunk is the whole context."""


class TorchAttention:
    """The ``Attention`` protocol on ``scaled_dot_product_attention``, for any block size.

    A sequence reads its own slots only, padding included, so that no other one can change its result.
    """

    def __init__(self, pool: Tensor) -> None:
        """``pool``: the KV pool, ``[2, num_layers, num_blocks, block_size, num_kv_heads, head_dim]``."""
        self._slots = pool.flatten(2, 3)  # [2, num_layers, num_slots, num_kv_heads, head_dim]

    def begin_step(self, inputs: AttentionInputs) -> _TorchStepAttention:
        """Find the slots of all contexts and build the masks."""
        return _TorchStepAttention(self._slots, inputs)


class _TorchStepAttention:
    def __init__(self, slots: Tensor, inputs: AttentionInputs) -> None:
        self._slots = slots
        self._slot_mapping = inputs.slot_mapping
        self._decodes = _find_decodes(inputs)
        self._chunks = _find_chunks(inputs)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self._slots[0, layer], self._slots[1, layer]
        keys.index_copy_(0, self._slot_mapping, key)
        values.index_copy_(0, self._slot_mapping, value)
        with _fitting_kernels(query.device):
            return self._attend(query, keys, values)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        decodes = self._decodes
        if decodes is not None and not self._chunks:
            return _attend_decodes(query, keys, values, decodes)
        output = torch.empty_like(query)
        if decodes is not None:
            output[decodes.rows] = _attend_decodes(query[decodes.rows], keys, values, decodes)
        for chunk in self._chunks:
            rows = slice(chunk.first_row, chunk.end_row)
            output[rows] = _attend_chunk(query[rows], keys, values, chunk)
        return output


def _fitting_kernels(device: torch.device) -> AbstractContextManager[object]:
    """Keep torch from cuDNN's kernel, which is planned anew for each length of context and so for each step."""
    if device.type == "cpu":
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def _find_decodes(inputs: AttentionInputs) -> _Decodes | None:
    members = [index for index, length in enumerate(inputs.query_lens) if length == 1]
    if not members:
        return None
    device = inputs.block_tables.device
    lengths = torch.tensor([inputs.context_lens[index] for index in members], device=device)[:, None]
    positions = torch.arange(max(inputs.context_lens[index] for index in members), device=device)  # [c]
    block_tables = inputs.block_tables[torch.tensor(members, device=device)]
    slots = _slots_of(block_tables, torch.minimum(positions, lengths - 1), inputs.block_size)
    rows = torch.tensor(inputs.query_lens, device=device).cumsum(0)[members] - 1
    return _Decodes(rows, slots, (positions < lengths)[:, None, None])


def _find_chunks(inputs: AttentionInputs) -> list[_Chunk]:
    chunks, end_row = [], 0
    for index, (query_len, context_len) in enumerate(zip(inputs.query_lens, inputs.context_lens, strict=True)):
        first_row, end_row = end_row, end_row + query_len
        if query_len == 1:
            continue
        positions = torch.arange(context_len, device=inputs.block_tables.device)
        slots = _slots_of(inputs.block_tables[index : index + 1], positions[None], inputs.block_size)[0]
        mask = positions <= positions[-query_len:, None] if context_len > query_len else None
        chunks.append(_Chunk(first_row, end_row, slots, mask))
    return chunks


def _slots_of(block_tables: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Slots of the tokens at ``positions`` ``[n, c]`` of the sequences with ``block_tables`` ``[n, max_blocks]``."""
    blocks = block_tables.gather(1, positions // block_size).long()
    return blocks * block_size + positions % block_size


def _attend_decodes(query: Tensor, keys: Tensor, values: Tensor, decodes: _Decodes) -> Tensor:
    """``query``: ``[n, num_heads, head_dim]``; ``keys``, ``values``: ``[num_slots, num_kv_heads, head_dim]``."""
    num_seqs, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    output = F.scaled_dot_product_attention(
        # The heads that share a KV head stand in the place of tokens: its context is read once for all.
        query.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim),
        _gather(keys, decodes.slots).transpose(1, 2),  # [n, num_kv_heads, c, head_dim]
        _gather(values, decodes.slots).transpose(1, 2),
        attn_mask=decodes.mask,
    )
    return output.reshape(num_seqs, num_heads, head_dim)


def _attend_chunk(query: Tensor, keys: Tensor, values: Tensor, chunk: _Chunk) -> Tensor:
    """``query``: ``[q, num_heads, head_dim]``; ``keys``, ``values``: ``[num_slots, num_kv_heads, head_dim]``."""
    query_len, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    heads_per_kv_head = num_heads // num_kv_heads
    shape = (num_kv_heads, heads_per_kv_head, len(chunk.slots), head_dim)
    output = F.scaled_dot_product_attention(
        query.view(query_len, num_kv_heads, heads_per_kv_head, head_dim).permute(1, 2, 0, 3),
        _gather(keys, chunk.slots).transpose(0, 1)[:, None].expand(shape),
        _gather(values, chunk.slots).transpose(0, 1)[:, None].expand(shape),
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
    )  # [num_kv_heads, heads_per_kv_head, q, head_dim]
    return output.permute(2, 0, 1, 3).reshape(query_len, num_heads, head_dim)


def _gather(numbers: Tensor, slots: Tensor) -> Tensor:
    """``numbers`` ``[num_slots, num_kv_heads, head_dim]`` of these slots: ``[*slots.shape, num_kv_heads, head_dim]``.
    Several times as fast as ``numbers[slots]`` on a CPU."""
    return numbers.index_select(0, slots.flatten()).unflatten(0, slots.shape)
