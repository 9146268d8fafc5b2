"""The kernels at sizes for which the interpreter is too slow, and at random ones: other ones in each run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DTYPES, generator, randn

# isort: split
from nanovllm.attention.triton.heads import HeadShape
from nanovllm.layers.triton.sampling import draw
from tests.attention.paged import Case
from tests.attention.test_triton_decode import check as check_decode
from tests.attention.test_triton_prefill import check as check_prefill
from tests.attention.test_triton_prefix import check as check_prefix
from tests.kernels import DEVICE
from tests.layers.test_triton_sampling import assert_drawn, make_keys, sums

pytestmark = pytest.mark.gpu

QWEN = HeadShape(16, 8, 128)
SMALL = HeadShape(4, 2, 64)
HEADS = (SMALL, HeadShape(7, 1, 64), HeadShape(6, 2, 96), QWEN, HeadShape(2, 1, 256), HeadShape(9, 3, 64))
BLOCK_SIZES = (16, 32, 64, 128, 256)
SIZES = [(shape, BLOCK_SIZES[(index + step) % 5]) for index, shape in enumerate(HEADS) for step in (0, 2)]
"""Each shape and each block size at least twice."""
VOCAB_SIZE = 151_936


def ragged(num_seqs: int, block_size: int, longest: int, seed: int) -> list[tuple[int, int]]:
    """Many short contexts, some around blocks, a few of the longest."""
    rng = random.Random(seed)
    edges = [0, 1, block_size - 2, block_size - 1, block_size, block_size + 1]
    lengths = [rng.choice(edges) if rng.random() < 0.5 else rng.randrange(300) for _ in range(num_seqs)]
    for _ in range(max(num_seqs // 40, 1)):
        lengths[rng.randrange(num_seqs)] = longest - rng.randrange(2) - 1
    return [(length, 1) for length in lengths]


# ---- decode ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_seqs", [1, 2, 4, 5, 16, 17, 64, 65, 100, 256, 512])
def test_decode_batches_of_every_size(num_seqs: int, dtype: torch.dtype) -> None:
    check_decode(Case(SMALL, 16, ragged(num_seqs, 16, 4096, num_seqs), dtype, norm=True, seed=num_seqs), None)


@pytest.mark.parametrize(("shape", "block_size"), SIZES, ids=str)
def test_decode_by_heads_and_blocks(shape: HeadShape, block_size: int) -> None:
    check_decode(Case(shape, block_size, ragged(24, block_size, 4096, block_size), torch.bfloat16, norm=True), None)


# ---- shared prefixes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_seqs", [2, 33, 256, 512])
def test_long_prefixes_of_many(num_seqs: int, dtype: torch.dtype) -> None:
    own = random.Random(num_seqs)
    lengths = [(1024 + own.choice((0, 1, 63, 64, 65, 130)), 1) for _ in range(num_seqs)]
    case = Case(SMALL, 64, [*lengths, (5, 1), (4095, 1)], dtype, norm=True)
    check_prefix(case.sharing([(range(num_seqs), 1024 // 64)]), None)


# ---- prompts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "lengths",
    [
        [(0, 8192)],
        [(8191, 1)],
        [(4096, 4096), (0, 1)],
        [(0, 4095), (0, 4096), (1, 15), (0, 4097)],
        [(index % 37, 1 + index % 50) for index in range(512)],
    ],
    ids=["8 k", "8 k cached but one", "half cached", "around 4 k", "512 chunks"],
)
def test_long_prompts(lengths: list[tuple[int, int]], dtype: torch.dtype) -> None:
    check_prefill(Case(SMALL, 16, lengths, dtype, norm=True), None)


@pytest.mark.parametrize(("shape", "block_size"), SIZES, ids=str)
def test_prompts_by_heads_and_blocks(shape: HeadShape, block_size: int) -> None:
    lengths = [(0, 1), (0, 700), (block_size - 1, 2), (block_size, 300), (1000, 257), (4095, 1)]
    check_prefill(Case(shape, block_size, lengths, torch.bfloat16, norm=True), None, in_place=True)


# ---- draws -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows", [1, 16, 17, 256, 512])
def test_draws_from_a_large_vocabulary(num_rows: int, dtype: torch.dtype) -> None:
    logits = randn(num_rows, VOCAB_SIZE, dtype=dtype, rng=generator(num_rows), scale=3)
    temperatures = [(0.0, 0.6, 1.0, 2.0)[index % 4] for index in range(num_rows)]
    positions = [index * 8 % 4096 for index in range(num_rows)]
    token_ids = torch.full((num_rows,), -1, dtype=torch.int32, device=DEVICE)
    columns = torch.tensor(temperatures, device=DEVICE), make_keys(num_rows, 0)
    draw(logits, *columns, torch.tensor(positions, dtype=torch.int32, device=DEVICE), token_ids)
    assert_drawn(token_ids.tolist(), sums(logits, temperatures, positions))


# ---- anything ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_shape_soup(dtype: torch.dtype, fresh_seed: int) -> None:
    rng = random.Random(fresh_seed)
    for _ in range(4):
        sizes = Case(
            rng.choice(HEADS), rng.choice(BLOCK_SIZES), (), dtype, rng.random() < 0.5, seed=rng.randrange(2**16)
        )
        num_seqs = rng.choice((1, 2, rng.randint(3, 16), rng.randint(17, 64), rng.randint(65, 300)))
        longest = rng.randint(300, 4096)
        check_decode(replace(sizes, lengths=ragged(num_seqs, sizes.block_size, longest, rng.randrange(99))), None)
        chunks = [(rng.choice((0, rng.randrange(longest))), rng.randint(1, 400)) for _ in range(min(num_seqs, 20))]
        check_prefill(replace(sizes, lengths=chunks), None, in_place=rng.random() < 0.5)
        num_shared = rng.randint(1, max(longest // sizes.block_size, 1))
        num_tokens = num_shared * sizes.block_size
        members = [(num_tokens + rng.randrange(100), 1) for _ in range(max(num_seqs, 2))]
        lengths = [*members, (rng.randrange(longest), 1)]
        saves_enough = (len(members) - 1) * num_tokens >= 256  # else they are no group
        shared = replace(sizes, lengths=lengths).sharing([(range(len(members)), num_shared)])
        check_prefix(shared, None, shares=saves_enough)
