"""The decode kernel equals attention over each sequence on its own, however the work is cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DEVICE, DTYPES, INTERPRETED, assert_near, poisoned

# isort: split
from nanovllm.attention.triton.decode_launch import DecodeAttention
from nanovllm.attention.triton.heads import HeadShape
from nanovllm.attention.triton.launch_parameters import DecodeParameters
from tests.attention.paged import Case, assert_stored, expected_of, make_step

SMALL = DecodeParameters(num_shares=5, tile=16, num_warps=1, num_stages=2)


def check(case: Case, parameters: DecodeParameters | None, *, max_seqs: int | None = None) -> None:
    step = make_step(case)
    expected = expected_of(case, step)
    before = step.keys.clone(), step.values.clone()
    decode = DecodeAttention(case.shape, max_seqs=max_seqs or len(case.lengths), dtype=case.dtype, device=DEVICE)
    plan = decode.plan(step.context_lens, step.block_tables, parameters=parameters)
    for _ in range(2):  # the second time: what the first has left behind does no harm
        out = poisoned(*expected.out.shape, dtype=case.dtype)
        decode.attend(plan, step.qkv, step.keys, step.values, step.transform, out)
        assert_near(out, expected.out)
        assert_stored(step, before, expected, assert_near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [False, True])
def test_lengths_around_blocks_and_tiles(dtype: torch.dtype, norm: bool) -> None:
    cached = [0, 1, 14, 15, 16, 17, 31, 32, 33, 63, 70]
    case = Case(HeadShape(4, 2, 64), 16, [(length, 1) for length in cached], dtype, norm)
    check(case, SMALL, max_seqs=16)


@pytest.mark.parametrize(
    ("shape", "block_size"),
    [
        (HeadShape(2, 2, 64), 16),
        (HeadShape(7, 1, 64), 32),
        (HeadShape(6, 2, 96), 256),
        (HeadShape(4, 2, 128), 32),
        (HeadShape(2, 1, 256), 64),
        (HeadShape(20, 1, 32), 16),
    ],
)
def test_shapes_of_heads_and_blocks(shape: HeadShape, block_size: int) -> None:
    lengths = [(block_size - 1, 1), (block_size, 1), (3, 1), (block_size + 1, 1)]
    check(Case(shape, block_size, lengths, DTYPES[1], norm=True), SMALL._replace(tile=32))


@pytest.mark.parametrize("num_shares", [1, 2, 3, 17, 100])
def test_however_many_shares(num_shares: int) -> None:
    lengths = [(40, 1), (0, 1), (130, 1), (2, 1), (15, 1)]
    check(Case(HeadShape(2, 1, 32), 16, lengths), SMALL._replace(num_shares=num_shares))


def test_a_long_context_alone_with_the_default_parameters() -> None:
    check(Case(HeadShape(2, 1, 64), 256, [(4095 if not INTERPRETED else 1023, 1)], DTYPES[-1]), None)


def test_many_short_sequences_a_share() -> None:
    lengths = [(length % 19, 1) for length in range(23)]
    check(Case(HeadShape(2, 1, 32), 16, lengths, DTYPES[1]), SMALL._replace(num_shares=2))


def test_rows_without_a_sequence_cost_nothing_and_change_nothing() -> None:
    case = Case(HeadShape(4, 2, 32), 16, [(70, 1), (0, 1), (50, 1)])
    step = make_step(case)
    expected = expected_of(case, step)
    step.context_lens[1:] = 0  # what a CUDA graph for a larger batch is given
    before = step.keys.clone()
    decode = DecodeAttention(case.shape, max_seqs=8, dtype=case.dtype, device=DEVICE)
    # 5 tiles in shares of 2: the last share reaches beyond them.
    plan = decode.plan(step.context_lens, step.block_tables, parameters=SMALL._replace(num_shares=3))
    out = torch.full(expected.out.shape, 7.0, device=DEVICE)
    decode.attend(plan, step.qkv, step.keys, step.values, step.transform, out)
    assert_near(out[:1], expected.out[:1])
    assert (out[1:] == 7).all()
    changed = (step.keys.nan_to_num(7.0) != before.nan_to_num(7.0)).any(-1).any(-1)
    assert changed.flatten().nonzero().flatten().tolist() == step.slot_mapping[:1].tolist()


@settings(max_examples=12 if INTERPRETED else 60)
@given(
    st.lists(st.integers(0, 90), min_size=1, max_size=5),
    st.sampled_from([HeadShape(1, 1, 32), HeadShape(6, 2, 32), HeadShape(3, 1, 64)]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([16, 32]),
    st.integers(1, 8),
    st.integers(0, 2**16),
)
def test_any_batch(lengths: list[int], shape: HeadShape, block_size: int, tile: int, shares: int, seed: int) -> None:
    case = Case(shape, block_size, [(length, 1) for length in lengths], norm=bool(seed % 2), seed=seed)
    check(case, SMALL._replace(tile=tile, num_shares=shares))
