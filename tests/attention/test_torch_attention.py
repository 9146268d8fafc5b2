"""Paged attention equals plain attention over each sequence on its own, for ragged batches of every kind."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from nanovllm.attention.interface import AttentionInputs
from nanovllm.attention.torch_attention import TorchAttention

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


shapes = st.builds(
    lambda kv, group, dim, block: Shape(kv * group, kv, dim, block),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([2, 8, 16]),
    st.sampled_from([1, 2, 3, 16, 256]),
)
cases = st.builds(
    Case,
    shapes,
    st.lists(st.tuples(st.integers(0, 40), st.one_of(st.just(1), st.integers(1, 20))), min_size=1, max_size=6),
    st.integers(0, 2**16),
)


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


def run(step: Step, layer: int) -> Tensor:
    attend = TorchAttention(step.pool).begin_step(step.inputs)
    return attend(layer, step.query, step.key, step.value)


@settings(max_examples=150)
@given(cases, st.integers(0, NUM_LAYERS - 1))
def test_equals_attention_over_each_sequence_alone(case: Case, layer: int) -> None:
    step = make_step(case, layer)
    output = run(step, layer)
    expected = [
        plain_attention(query, keys, values)
        for query, (keys, values) in zip(step.query.split(step.inputs.query_lens), step.contexts, strict=True)
    ]
    # Finite although all other slots hold no number: nothing else was read.
    torch.testing.assert_close(output, torch.cat(expected), atol=1e-5, rtol=1e-4)


@settings(max_examples=50)
@given(cases)
def test_writes_the_new_tokens_and_nothing_else(case: Case) -> None:
    step = make_step(case, layer=1)
    before = step.pool.clone()
    run(step, layer=1)
    before.flatten(2, 3)[0, 1, step.inputs.slot_mapping] = step.key
    before.flatten(2, 3)[1, 1, step.inputs.slot_mapping] = step.value
    assert torch.equal(step.pool.nan_to_num(7.0), before.nan_to_num(7.0))


@pytest.mark.parametrize("lengths", [[(70, 1), (3, 1), (200, 1)], [(0, 40), (64, 30)], [(5, 1), (9, 33), (0, 1)]])
def test_a_sequence_computes_the_same_alone_and_among_others(lengths: list[tuple[int, int]]) -> None:
    shape = Shape(num_heads=6, num_kv_heads=2, head_dim=16, block_size=4)
    step = make_step(Case(shape, lengths, seed=3), layer=0)
    together = run(step, layer=0).split(step.inputs.query_lens)
    ends = torch.tensor(step.inputs.query_lens).cumsum(0).tolist()
    for index, end in enumerate(ends):
        rows = slice(end - step.inputs.query_lens[index], end)
        alone = AttentionInputs(
            query_lens=step.inputs.query_lens[index : index + 1],
            context_lens=step.inputs.context_lens[index : index + 1],
            slot_mapping=step.inputs.slot_mapping[rows],
            block_tables=step.inputs.block_tables[index : index + 1],
            block_size=shape.block_size,
        )
        attend = TorchAttention(step.pool).begin_step(alone)
        torch.testing.assert_close(
            attend(0, step.query[rows], step.key[rows], step.value[rows]), together[index], atol=1e-6, rtol=1e-5
        )
