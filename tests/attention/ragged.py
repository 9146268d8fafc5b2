"""Ragged steps over a paged pool, and plain attention over each sequence alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from nanovllm.attention.interface import AttentionInputs

NUM_LAYERS = 2


@dataclass(frozen=True)
class Shape:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int


@dataclass(frozen=True)
class Case:
    """Sequences as (tokens cached before, tokens computed now)."""

    shape: Shape
    lengths: list[tuple[int, int]]
    seed: int


@dataclass(frozen=True)
class Step:
    """A step over a pool in which everything that no context covers is not a number."""

    pool: Tensor
    inputs: AttentionInputs
    query: Tensor
    key: Tensor
    value: Tensor
    contexts: list[tuple[Tensor, Tensor]]
    """Each sequence's keys and values ``[context, num_kv_heads, head_dim]``, in order."""


def make_step(case: Case, layer: int) -> Step:
    shape, generator = case.shape, torch.Generator().manual_seed(case.seed)

    def randn(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    num_blocks = [-(-(cached + new) // shape.block_size) for cached, new in case.lengths]
    blocks = list(range(1, sum(num_blocks) + 3))
    random.Random(case.seed).shuffle(blocks)
    tables = torch.zeros(len(case.lengths), max(num_blocks), dtype=torch.int32)
    pool = torch.full((2, NUM_LAYERS, len(blocks) + 1, shape.block_size, shape.num_kv_heads, shape.head_dim), math.nan)
    slots, contexts = [], []
    for row, (cached, new), count in zip(tables, case.lengths, num_blocks, strict=True):
        table = torch.tensor([blocks.pop() for _ in range(count)])
        row[:count] = table
        places = torch.arange(cached + new)
        context = randn(2, cached + new, shape.num_kv_heads, shape.head_dim)
        context_slots = table[places // shape.block_size] * shape.block_size + places % shape.block_size
        pool.flatten(2, 3)[:, layer, context_slots[:cached]] = context[:, :cached]
        slots.append(context_slots[cached:])
        contexts.append((context[0], context[1]))
    new_lens = [new for _, new in case.lengths]
    inputs = AttentionInputs(
        query_lens=tuple(new_lens),
        context_lens=tuple(cached + new for cached, new in case.lengths),
        slot_mapping=torch.cat(slots),
        block_tables=tables,
        block_size=shape.block_size,
    )
    new_keys, new_values = (
        torch.cat([context[kind][-new:] for context, new in zip(contexts, new_lens, strict=True)]) for kind in (0, 1)
    )
    return Step(pool, inputs, randn(sum(new_lens), shape.num_heads, shape.head_dim), new_keys, new_values, contexts)


def plain_attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One sequence, softmax written out; the queries are those of its last tokens."""
    heads_per_kv_head = query.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(heads_per_kv_head, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, keys) / math.sqrt(query.shape[2])
    last = len(keys) - len(query)
    for row in range(len(query)):
        scores[:, row, last + row + 1 :] = -math.inf
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)


def expected_of(step: Step) -> Tensor:
    """``[num_tokens, num_heads, head_dim]``."""
    outputs = [
        plain_attention(query, keys, values)
        for query, (keys, values) in zip(step.query.split(step.inputs.query_lens), step.contexts, strict=True)
    ]
    return torch.cat(outputs)
