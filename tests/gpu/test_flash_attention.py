"""The real flash-attn on a card against float64, at lengths and batch sizes where kernels err."""

from __future__ import annotations

import itertools
import math
import random

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("flash_attn", reason="needs flash-attn", exc_type=ImportError)

import torch

from nanovllm.attention.flash_attention import FlashAttention, find_obstacle
from nanovllm.attention.interface import AttentionInputs
from tests.attention.ragged import plain_attention

pytestmark = pytest.mark.gpu

BLOCK_SIZE = 256
LENGTHS = (1, 2, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 700, 4095, 4096)
BUILDS = tuple(itertools.product((64, 96, 128, 256), (torch.bfloat16, torch.float16)))
HEADS = ((16, 8), (8, 8), (8, 1))


@pytest.fixture(params=BUILDS, ids=lambda build: f"{build[0]}-{str(build[1]).removeprefix('torch.')}")
def build(request: pytest.FixtureRequest) -> tuple[int, torch.dtype]:
    """A head size and a type that the installed package has kernels for."""
    head_dim, dtype = request.param
    obstacle = find_obstacle(head_dim, dtype, torch.device("cuda"))
    if obstacle is not None:
        pytest.skip(obstacle)
    return head_dim, dtype


def check(
    lengths: list[tuple[int, int]],
    build: tuple[int, torch.dtype],
    heads: tuple[int, int] = HEADS[0],
    num_splits: int = 0,
    block_size: int = BLOCK_SIZE,
) -> None:
    """One layer of a step of these sequences, as (tokens cached, tokens computed), in a pool that holds no number where
    no context is, against float64."""
    head_dim, dtype = build
    num_heads, num_kv_heads = heads
    rng = torch.Generator(device="cuda").manual_seed(len(lengths))

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device="cuda").to(dtype)

    counts = [-(-(cached + new) // block_size) for cached, new in lengths]
    blocks = list(range(1, sum(counts) + 1))
    random.Random(0).shuffle(blocks)
    tables = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    pool = torch.full((2, 1, len(blocks) + 1, block_size, num_kv_heads, head_dim), math.nan, dtype=dtype, device="cuda")
    slots, contexts = [], []
    for row, (cached, new), count in zip(tables, lengths, counts, strict=True):
        row[:count] = torch.tensor([blocks.pop() for _ in range(count)])
        places = torch.arange(cached + new)
        context_slots = (row[places // block_size] * block_size + places % block_size).long().cuda()
        context = randn(2, cached + new, num_kv_heads, head_dim)
        pool.flatten(2, 3)[:, 0, context_slots[:cached]] = context[:, :cached]
        slots.append(context_slots[cached:])
        contexts.append(context)
    inputs = AttentionInputs(
        query_lens=tuple(new for _, new in lengths),
        context_lens=tuple(cached + new for cached, new in lengths),
        slot_mapping=torch.cat(slots),
        block_tables=tables.cuda(),
        block_size=block_size,
    )
    query = 2 * randn(sum(inputs.query_lens), num_heads, head_dim)
    key, value = (
        torch.cat([context[kind, cached:] for context, (cached, _) in zip(contexts, lengths, strict=True)])
        for kind in (0, 1)
    )
    output = FlashAttention(pool, num_splits=num_splits).begin_step(inputs)(0, query, key, value)
    assert output.isfinite().all(), "a slot was read that no context covers"
    tolerance = 2e-2 if dtype == torch.bfloat16 else 3e-3
    for part, part_query, context in zip(
        output.split(inputs.query_lens), query.split(inputs.query_lens), contexts, strict=True
    ):
        expected = plain_attention(part_query.double(), context[0].double(), context[1].double())
        torch.testing.assert_close(part.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("heads", HEADS)
def test_decodes_of_every_length(build: tuple[int, torch.dtype], heads: tuple[int, int]) -> None:
    check([(length - 1, 1) for length in LENGTHS], build, heads)


@pytest.mark.parametrize("heads", HEADS)
def test_chunks_and_decodes_in_one_step(build: tuple[int, torch.dtype], heads: tuple[int, int]) -> None:
    check([(0, 1), (0, 257), (255, 2), (256, 300), (4095, 1), (511, 1), (3840, 255), (1000, 7)], build, heads)


@pytest.mark.parametrize("num_tokens", LENGTHS)
def test_whole_prompts(build: tuple[int, torch.dtype], num_tokens: int) -> None:
    check([(0, num_tokens)], build)


@pytest.mark.parametrize("num_seqs", [1, 2, 3, 16, 100, 256, 512])
def test_batches_of_every_size(build: tuple[int, torch.dtype], num_seqs: int) -> None:
    rng = random.Random(num_seqs)
    check([(rng.randrange(600), 1) for _ in range(num_seqs)], build)


@pytest.mark.parametrize("num_splits", [1, 2, 7, 16])
def test_contexts_cut_into_parts(build: tuple[int, torch.dtype], num_splits: int) -> None:
    check([(length - 1, 1) for length in LENGTHS], build, num_splits=num_splits)


def test_larger_blocks(build: tuple[int, torch.dtype]) -> None:
    check([(length - 1, 1) for length in LENGTHS], build, block_size=768)
    check([(0, 1), (767, 300), (100, 1000)], build, block_size=768)
