"""Step inputs, exactly, for every way a sequence can come to its counters."""

from __future__ import annotations

import torch
from hypothesis import given, strategies as st

from nanovllm.engine.sequence import Sequence
from nanovllm.runner.inputs import StepInputs, build_step_inputs

CPU = torch.device("cpu")


def sequence(token_ids: list[int], block_table: list[int], num_cached: int, num_scheduled: int) -> Sequence:
    seq = Sequence(token_ids)
    seq.block_table = block_table
    seq.num_cached_tokens = num_cached
    seq.num_scheduled_tokens = num_scheduled
    return seq


def test_a_chunk_a_decode_and_a_whole_prompt_in_one_step() -> None:
    chunk = sequence([10, 11, 12, 13, 14, 15, 16, 17, 18], [7, 2, 9], num_cached=3, num_scheduled=4)
    decode = sequence([20, 21, 22, 23, 24, 25], [4, 5], num_cached=5, num_scheduled=1)
    prompt = sequence([30, 31], [1], num_cached=0, num_scheduled=2)
    inputs = build_step_inputs([chunk, decode, prompt], 4, CPU)
    assert inputs.token_ids.tolist() == [13, 14, 15, 16, 25, 30, 31]
    assert inputs.positions.tolist() == [3, 4, 5, 6, 5, 0, 1]
    assert inputs.last_rows.tolist() == [3, 4, 6]
    attention = inputs.attention
    assert attention.slot_mapping.tolist() == [31, 8, 9, 10, 21, 4, 5]
    assert attention.query_lens == (4, 1, 2)
    assert attention.context_lens == (7, 6, 2)
    # The chunk's third block holds nothing yet that it may see.
    assert attention.block_tables.tolist() == [[7, 2], [4, 5], [1, 0]]
    assert attention.block_size == 4


def test_types() -> None:
    inputs = build_step_inputs([sequence([1, 2], [0], 0, 2)], 16, CPU)
    for tensor in (inputs.token_ids, inputs.positions, inputs.last_rows, inputs.attention.slot_mapping):
        assert tensor.dtype == torch.int64
    assert inputs.attention.block_tables.dtype == torch.int32


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Sequence], int]:
    block_size = draw(st.sampled_from([1, 2, 3, 16]))
    sequences, next_block = [], 0
    for _ in range(draw(st.integers(1, 5))):
        num_tokens = draw(st.integers(1, 30))
        num_cached = draw(st.integers(0, num_tokens - 1))
        num_scheduled = draw(st.integers(1, num_tokens - num_cached))
        num_blocks = -(-num_tokens // block_size)
        table = draw(st.permutations(range(next_block, next_block + num_blocks)))
        next_block += num_blocks
        tokens = draw(st.lists(st.integers(0, 2**31), min_size=num_tokens, max_size=num_tokens))
        sequences.append(sequence(tokens, list(table), num_cached, num_scheduled))
    return sequences, block_size


@given(batches())
def test_equals_a_loop_over_tokens(batch: tuple[list[Sequence], int]) -> None:
    sequences, block_size = batch
    inputs: StepInputs = build_step_inputs(sequences, block_size, CPU)
    expected = [
        (seq.token_ids[at], at, seq.block_table[at // block_size] * block_size + at % block_size)
        for seq in sequences
        for at in range(seq.num_cached_tokens, seq.num_cached_tokens + seq.num_scheduled_tokens)
    ]
    got = inputs.token_ids.tolist(), inputs.positions.tolist(), inputs.attention.slot_mapping.tolist()
    assert list(zip(*got, strict=True)) == expected
    assert inputs.last_rows.tolist()[-1] == len(expected) - 1
