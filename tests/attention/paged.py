"""Steps over a paged pool, and what attention makes of them, computed in float64 without pages."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from tests.kernels import DEVICE, generator, poisoned, randn

MAX_POSITION = 8192


@dataclass(frozen=True)
class Case:
    """What to make a step of."""

    shape: HeadShape
    block_size: int
    lengths: Sequence[tuple[int, int]]
    """For each sequence the tokens cached before, and those computed now."""
    dtype: torch.dtype = torch.float32
    norm: bool = False
    shared: Sequence[tuple[Sequence[int], int]] = ()
    """Sequences and how many leading blocks they have in common; nested ones after those around them."""
    seed: int = 0

    def sharing(self, shared: Sequence[tuple[Sequence[int], int]]) -> Case:
        return replace(self, shared=shared)


@dataclass(frozen=True)
class Step:
    """Inputs of the kernels. Pool slots that no context covers hold no number."""

    qkv: Tensor
    keys: Tensor
    values: Tensor
    block_tables: Tensor
    context_lens: Tensor
    positions: Tensor
    slot_mapping: Tensor
    transform: HeadTransform
    query_lens: list[int]


@dataclass(frozen=True)
class Expected:
    """In float64: ``[num_tokens, heads, head_dim]`` each."""

    query: Tensor
    new_keys: Tensor
    new_values: Tensor
    out: Tensor


def make_step(case: Case) -> Step:
    rng = generator(case.seed)
    shape, block_size = case.shape, case.block_size
    tables, num_blocks = _draw_tables(case)
    pool = poisoned(2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim, dtype=case.dtype)
    positions, slots = [], []
    for (cached, new), table in zip(case.lengths, tables, strict=True):
        places = torch.arange(cached + new)
        context_slots = (table[places // block_size] * block_size + places % block_size).to(DEVICE)
        # Blocks that are shared are filled several times; the last time counts for all.
        numbers = randn(2, cached, shape.num_kv_heads, shape.head_dim, dtype=case.dtype, rng=rng)
        pool.flatten(1, 2)[:, context_slots[:cached]] = numbers
        positions.append(places[cached:])
        slots.append(context_slots[cached:])
    width = max(len(table) for table in tables)
    block_tables = torch.stack([torch.nn.functional.pad(table, (0, width - len(table))) for table in tables])
    num_tokens = sum(new for _, new in case.lengths)
    line = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    return Step(
        qkv=randn(num_tokens, line, dtype=case.dtype, rng=rng),
        keys=pool[0],
        values=pool[1],
        block_tables=block_tables.to(torch.int32).to(DEVICE),
        context_lens=torch.tensor([cached + new for cached, new in case.lengths], dtype=torch.int32, device=DEVICE),
        positions=torch.cat(positions).to(DEVICE),
        slot_mapping=torch.cat(slots),
        transform=_make_transform(case, rng),
        query_lens=[new for _, new in case.lengths],
    )


def _draw_tables(case: Case) -> tuple[list[Tensor], int]:
    counts = [-(-(cached + new) // case.block_size) for cached, new in case.lengths]
    blocks = list(range(1, sum(counts) + 3))
    random.Random(case.seed).shuffle(blocks)
    tables = [torch.tensor([blocks.pop() for _ in range(count)]) for count in counts]
    for members, count in case.shared:
        for member in members[1:]:
            assert case.lengths[member][0] >= count * case.block_size, "shared blocks are full"
            tables[member][:count] = tables[members[0]][:count]
    return tables, sum(counts) + 3


def _make_transform(case: Case, rng: torch.Generator) -> HeadTransform:
    dim = case.shape.head_dim
    angles = torch.outer(torch.arange(MAX_POSITION).float(), 10000.0 ** (-torch.arange(0, dim, 2).float() / dim))
    q_norm, k_norm = (1 + randn(dim, dtype=case.dtype, rng=rng, scale=0.2) for _ in range(2))
    return HeadTransform(
        cos=angles.cos().to(DEVICE),
        sin=angles.sin().to(DEVICE),
        q_norm=q_norm if case.norm else None,
        k_norm=k_norm if case.norm else None,
    )


def expected_of(case: Case, step: Step) -> Expected:
    """To be called before a kernel writes into the pool."""
    shape = case.shape
    heads = step.qkv.double().unflatten(1, (-1, shape.head_dim))
    query, new_keys, new_values = heads.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    query = _rotate(query, step.transform.q_norm, step)
    new_keys = _rotate(new_keys, step.transform.k_norm, step)
    outs, first = [], 0
    for row, (cached, new) in enumerate(case.lengths):
        rows = slice(first, first + new)
        places = torch.arange(cached, device=DEVICE)
        slots = step.block_tables[row].long()[places // case.block_size] * case.block_size + places % case.block_size
        keys = torch.cat([step.keys.flatten(0, 1)[slots].double(), new_keys[rows]])
        values = torch.cat([step.values.flatten(0, 1)[slots].double(), new_values[rows]])
        outs.append(_attend(query[rows], keys, values))
        first += new
    return Expected(query, new_keys, new_values, torch.cat(outs))


def _rotate(heads: Tensor, norm: Tensor | None, step: Step) -> Tensor:
    if norm is not None:
        heads = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + step.transform.eps) * norm.double()
    cos, sin = (table[step.positions].double()[:, None] for table in (step.transform.cos, step.transform.sin))
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Softmax written out; the queries are those of the last tokens."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, keys) / math.sqrt(query.shape[2])
    last = torch.arange(len(keys) - len(query), len(keys), device=keys.device)
    hidden = torch.arange(len(keys), device=keys.device)[None, :] > last[:, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), values)


def assert_stored(step: Step, before: tuple[Tensor, Tensor], expected: Expected, near: object) -> None:
    """The new keys and values are in the pool, and everything else is what it was."""
    for pool, was, new in zip((step.keys, step.values), before, (expected.new_keys, expected.new_values), strict=True):
        now, was = pool.flatten(0, 1).clone(), was.flatten(0, 1).clone()
        near(now[step.slot_mapping], new)  # type: ignore[operator]
        now[step.slot_mapping] = was[step.slot_mapping] = 0
        assert torch.equal(now.nan_to_num(7.0), was.nan_to_num(7.0)), "another slot was written"
