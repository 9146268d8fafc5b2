"""Paged attention equals plain attention over each sequence on its own, for ragged batches of every kind."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from nanovllm.attention.interface import AttentionInputs
from nanovllm.attention.torch_attention import TorchAttention
from tests.attention.ragged import NUM_LAYERS, Case, Shape, Step, expected_of, make_step

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


def run(step: Step, layer: int) -> Tensor:
    attend = TorchAttention(step.pool).begin_step(step.inputs)
    return attend(layer, step.query, step.key, step.value)


@settings(max_examples=150)
@given(cases, st.integers(0, NUM_LAYERS - 1))
def test_equals_attention_over_each_sequence_alone(case: Case, layer: int) -> None:
    step = make_step(case, layer)
    output = run(step, layer)
    # Finite although all other slots hold no number: nothing else was read.
    torch.testing.assert_close(output, expected_of(step), atol=1e-5, rtol=1e-4)


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
