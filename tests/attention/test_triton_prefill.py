"""Chunks of prompts: new heads are rotated and stored, then attend to their sequence up to themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DEVICE, DTYPES, INTERPRETED, assert_near, poisoned

# isort: split
from nanovllm.attention.triton.heads import HeadShape
from nanovllm.attention.triton.launch_parameters import PrefillParameters, StoreParameters
from nanovllm.attention.triton.prefill_launch import attend_chunks, list_tiles, plan_prefill, store
from tests.attention.paged import Case, assert_stored, expected_of, make_step

SMALL = PrefillParameters(rows=16, tile=16, num_warps=2, num_stages=2)


def check(case: Case, parameters: PrefillParameters | None = SMALL, *, in_place: bool = False) -> None:
    step, shape = make_step(case), case.shape
    expected = expected_of(case, step)
    before = step.keys.clone(), step.values.clone()
    query = poisoned(*expected.query.shape, dtype=case.dtype)
    if in_place:
        query = step.qkv[:, : shape.num_heads * shape.head_dim].unflatten(1, (shape.num_heads, shape.head_dim))
    pool = step.keys, step.values
    few = StoreParameters(tokens=4, num_warps=1)
    store(step.qkv, step.positions, step.slot_mapping, *pool, query, step.transform, shape, parameters=few)
    assert_near(query, expected.query)
    assert_stored(step, before, expected, assert_near)
    plan = plan_prefill(
        step.query_lens,
        step.context_lens.tolist(),
        step.block_tables,
        shape,
        dtype=case.dtype,
        parameters=parameters,
    )
    out = poisoned(*expected.out.shape, dtype=case.dtype)
    attend_chunks(plan, query, *pool, out, shape)
    assert_near(out, expected.out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [False, True])
def test_lengths_around_blocks_and_tiles(dtype: torch.dtype, norm: bool) -> None:
    lengths = [(0, 1), (0, 15), (15, 1), (16, 17), (31, 2), (1, 33), (47, 16)]
    check(Case(HeadShape(4, 2, 64), 16, lengths, dtype, norm))


@pytest.mark.parametrize(
    ("shape", "block_size"),
    [
        (HeadShape(2, 2, 64), 16),
        (HeadShape(7, 1, 64), 32),
        (HeadShape(6, 2, 96), 256),
        (HeadShape(2, 1, 128), 32),
        (HeadShape(2, 1, 256), 64),
        (HeadShape(20, 1, 32), 16),
    ],
)
def test_shapes_of_heads_and_blocks(shape: HeadShape, block_size: int) -> None:
    lengths = [(block_size, 3), (0, block_size + 1), (block_size - 1, 9)]
    check(Case(shape, block_size, lengths, DTYPES[1], norm=True), SMALL._replace(rows=64, tile=32), in_place=True)


@pytest.mark.parametrize(("cached", "new"), [(0, 300), (170, 130), (511, 1)])
def test_the_default_parameters(cached: int, new: int) -> None:
    if not INTERPRETED:
        cached, new = cached * 8, new * 8
    check(Case(HeadShape(2, 1, 64), 16, [(cached, new), (3, 20)], DTYPES[-1]), None)


@settings(max_examples=12 if INTERPRETED else 60)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=4),
    st.sampled_from([HeadShape(1, 1, 32), HeadShape(6, 2, 32), HeadShape(3, 1, 64)]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([16, 32]),
    st.sampled_from([16, 64]),
    st.integers(0, 2**16),
)
def test_any_batch(
    lengths: list[tuple[int, int]], shape: HeadShape, block_size: int, tile: int, rows: int, seed: int
) -> None:
    case = Case(shape, block_size, lengths, norm=bool(seed % 2), seed=seed)
    check(case, SMALL._replace(tile=tile, rows=rows))


def test_tiles_cover_each_token_once_and_the_heaviest_come_first() -> None:
    tiles = list_tiles([5, 1, 4], [5, 30, 14], tokens_per_tile=4)
    assert tiles.tolist() == [
        # row, tokens, position, sequence
        [5, 1, 29, 1],
        [6, 4, 10, 2],
        [4, 1, 4, 0],
        [0, 4, 0, 0],
    ]


def test_a_step_does_not_read_what_it_did_not_compute() -> None:
    # The tables are padded with block 0, which no sequence holds: it is full of NaN, as are the tails of blocks.
    case = Case(HeadShape(1, 1, 32), 16, [(0, 2), (40, 3)])
    step = make_step(case)
    assert step.block_tables[0].tolist()[1:] == [0, 0]
    assert step.keys[0].isnan().all()
    assert step.keys.device.type == DEVICE.type
    check(case)
