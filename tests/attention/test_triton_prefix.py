"""Prefixes that sequences share: attended to once, merged with each sequence's own tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DEVICE, DTYPES, INTERPRETED, assert_near, poisoned

# isort: split
from nanovllm.attention.triton.decode_launch import DecodeAttention
from nanovllm.attention.triton.heads import HeadShape
from nanovllm.attention.triton.launch_parameters import DecodeParameters, PrefixParameters
from nanovllm.attention.triton.prefix_launch import PrefixAttention
from tests.attention.paged import Case, assert_stored, expected_of, make_step

DECODE = DecodeParameters(num_shares=5, tile=16, num_warps=1, num_stages=2)
SMALL = PrefixParameters(num_programs=4, rows=16, tile=16, num_warps=2, num_stages=2)


def check(case: Case, parameters: PrefixParameters | None = SMALL, *, shares: bool = True) -> None:
    step = make_step(case)
    expected = expected_of(case, step)
    before = step.keys.clone(), step.values.clone()
    max_seqs = len(case.lengths) + 2
    decode = DecodeAttention(case.shape, max_seqs=max_seqs, dtype=case.dtype, device=DEVICE)
    prefix = PrefixAttention(
        case.shape,
        max_seqs=max_seqs,
        block_size=case.block_size,
        dtype=case.dtype,
        device=DEVICE,
        parameters=parameters,
    )
    prefix.step.out.fill_(float("nan"))
    prefix.step.lse.fill_(float("nan"))
    tables, lens = step.block_tables.cpu().numpy(), step.context_lens.cpu().numpy()
    assert (prefix.plan(tables, lens, min_saved_tokens=1) > 0) == shares
    plan = decode.plan(step.context_lens, step.block_tables, prefix=prefix.step, parameters=DECODE)
    pool = step.keys, step.values
    prefix.attend(step.qkv, *pool, step.transform, step.context_lens, step.block_tables)
    out = poisoned(*expected.out.shape, dtype=case.dtype)
    decode.attend(plan, step.qkv, *pool, step.transform, out)
    assert_near(out, expected.out)
    assert_stored(step, before, expected, assert_near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [False, True])
def test_two_groups_and_one_alone(dtype: torch.dtype, norm: bool) -> None:
    lengths = [(320, 1), (40, 1), (257, 1), (300, 1), (310, 1), (256, 1)]
    shared = [((0, 2, 5), 16), ((3, 4), 18)]
    check(Case(HeadShape(4, 2, 32), 16, lengths, dtype, norm, shared))


def test_groups_within_groups() -> None:
    lengths = [(600, 1)] * 4 + [(540, 1), (530, 1)]
    shared = [((0, 1, 2, 3, 4, 5), 16), ((0, 1, 2), 32), ((0, 1), 37), ((4, 5), 33)]
    check(Case(HeadShape(2, 1, 32), 16, lengths, shared=shared))


@pytest.mark.parametrize(
    ("shape", "block_size", "tile"),
    [
        (HeadShape(7, 1, 64), 32, 64),  # the last tile of a part is not full
        (HeadShape(6, 2, 96), 256, 32),
        (HeadShape(2, 1, 128), 64, 64),
        (HeadShape(2, 2, 256), 128, 16),
        (HeadShape(20, 1, 32), 16, 16),
    ],
)
def test_shapes_of_heads_and_blocks(shape: HeadShape, block_size: int, tile: int) -> None:
    count = 288 // block_size or 1
    length = count * block_size
    case = Case(shape, block_size, [(length, 1), (length + 3, 1), (length + 1, 1)], DTYPES[1], norm=True)
    check(case.sharing([((0, 1, 2), count)]), SMALL._replace(tile=tile, rows=32))


def test_more_members_than_rows_with_the_default_parameters() -> None:
    count = 33 if INTERPRETED else 250
    case = Case(HeadShape(2, 1, 64), 256, [(256 + i % 3, 1) for i in range(count)], DTYPES[-1])
    check(case.sharing([(range(count), 1)]), None)


def test_nothing_shared_is_nothing_done() -> None:
    check(Case(HeadShape(2, 1, 32), 16, [(40, 1), (50, 1)]), shares=False)


@settings(max_examples=8 if INTERPRETED else 40)
@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=4),
    st.integers(16, 40),
    st.sampled_from([HeadShape(6, 2, 32), HeadShape(3, 1, 64)]),
    st.sampled_from([16, 32]),
    st.integers(0, 2**16),
)
def test_any_batch(own: list[int], shared: int, shape: HeadShape, tile: int, seed: int) -> None:
    lengths = [(shared * 16 + length, 1) for length in own]
    case = Case(shape, 16, [(5, 1), *lengths], norm=bool(seed % 2), seed=seed)
    check(case.sharing([(range(1, len(own) + 1), shared)]), SMALL._replace(tile=tile))
