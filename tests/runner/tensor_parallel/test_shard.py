"""What each rank holds: together they hold the model, and each reads from the checkpoint what is its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from nanovllm.errors import ConfigError
from nanovllm.layers.group import VocabularyShard, share_of
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.models.shard import cut_of, kv_heads_of, num_parameters_of, shard_spec
from nanovllm.runner.dummy_weights import fill_with_random_weights
from nanovllm.runner.weights import checkpoint_tensors, load_weights
from tests.tiny_models import FAMILIES


@dataclass
class Member:
    """A rank that is alone in its process: it has nobody to talk to."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def all_gather(self, x: Tensor) -> Tensor:
        raise NotImplementedError


def members(size: int) -> list[Member]:
    return [Member(rank, size) for rank in range(size)]


def spec_with(num_heads: int, num_kv_heads: int) -> ModelSpec:
    return replace(ModelSpec.preset("qwen3-0.6b"), num_heads=num_heads, num_kv_heads=num_kv_heads)


@given(total=st.integers(1, 1000), size=st.integers(1, 9))
def test_shares_make_up_the_whole(total: int, size: int) -> None:
    shares = [share_of(total, member) for member in members(size)]
    assert [thing for share in shares for thing in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert max(map(len, shares)) == VocabularyShard(total, members(size)[0]).max_len


@given(st.data())
def test_every_query_head_reads_its_own_kv_head(data: st.DataObject) -> None:
    """As attention sees it: local head ``i`` reads local KV head ``i // (heads / KV heads)``."""
    num_kv_heads = data.draw(st.integers(1, 8))
    num_heads = num_kv_heads * data.draw(st.integers(1, 8))
    size = data.draw(st.sampled_from([n for n in range(1, num_heads + 1) if num_heads % n == 0]))
    spec = spec_with(num_heads, num_kv_heads)
    for member in members(size):
        kv_heads, local = kv_heads_of(spec, member), shard_spec(spec, member)
        assert len(kv_heads) == local.num_kv_heads
        assert local.num_heads % local.num_kv_heads == 0
        for index, head in enumerate(share_of(num_heads, member)):
            kv_head = kv_heads[index // (local.num_heads // local.num_kv_heads)]
            assert kv_head == head // (num_heads // num_kv_heads)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "expected"),
    [
        (8, 4, 2, [[0, 1], [2, 3]]),
        (8, 2, 4, [[0], [0], [1], [1]]),
        (6, 2, 3, [[0, 0], [0, 1], [1, 1]]),
        (6, 2, 6, [[0], [0], [0], [1], [1], [1]]),
    ],
)
def test_kv_heads(heads: int, kv_heads: int, size: int, expected: list[list[int]]) -> None:
    assert [kv_heads_of(spec_with(heads, kv_heads), member) for member in members(size)] == expected


@given(
    num_kv_heads=st.integers(1, 8),
    num_readers=st.integers(1, 8),
    intermediate_size=st.integers(64, 200),
    vocab_size=st.integers(64, 200),
    data=st.data(),
)
def test_the_share_that_is_planned_with_is_the_largest(
    num_kv_heads: int, num_readers: int, intermediate_size: int, vocab_size: int, data: st.DataObject
) -> None:
    num_heads = num_kv_heads * num_readers
    size = data.draw(st.sampled_from([n for n in range(1, num_heads + 1) if num_heads % n == 0]))
    spec = replace(spec_with(num_heads, num_kv_heads), intermediate_size=intermediate_size, vocab_size=vocab_size)
    share = spec.share_of(size)
    shards = [shard_spec(spec, member) for member in members(size)]
    assert {shard.num_heads for shard in shards} == {share.num_heads}
    assert {shard.num_kv_heads for shard in shards} == {share.num_kv_heads}
    assert max(shard.intermediate_size for shard in shards) == share.intermediate_size
    assert max(len(share_of(vocab_size, member)) for member in members(size)) == share.vocab_size
    assert max(num_parameters_of(spec, member) for member in members(size)) <= share.num_parameters


def test_sizes_that_do_not_divide_the_heads_are_refused() -> None:
    for size in (1, 2, 3, 6):
        spec_with(6, 2).check_tensor_parallel_size(size)
    for size in (4, 5, 12):
        with pytest.raises(ConfigError, match=rf"tensor_parallel_size={size} is not allowed: .* 6 heads: 1, 2, 3, 6$"):
            spec_with(6, 2).check_tensor_parallel_size(size)


def decoder(directory: Path, member: Member) -> Decoder:
    return Decoder(ModelSpec.from_directory(directory), max_position=8, dtype=torch.float32, group=member)


def assert_is_part_of(part: Decoder, whole: Decoder) -> None:
    wholes = checkpoint_tensors(whole)
    assert checkpoint_tensors(part).keys() == wholes.keys()
    for name, tensor in checkpoint_tensors(part).items():
        cut, expected = cut_of(name, whole.spec, part.group), wholes[name]
        if cut is not None:
            expected = torch.cat([expected.narrow(cut.dim, run.start, len(run)) for run in cut.runs], dim=cut.dim)
        assert torch.equal(tensor, expected), name


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_load_and_draw_their_parts(family: str, size: int, tiny_model: Callable[[str], Path]) -> None:
    whole = decoder(tiny_model(family), Member(0, 1))
    for fill in (
        lambda model: load_weights(model, tiny_model(family)),
        lambda model: fill_with_random_weights(model, 7),
    ):
        fill(whole)
        for member in members(size):
            part = decoder(tiny_model(family), member)
            for parameter in part.parameters():
                parameter.fill_(torch.nan)
            fill(part)
            assert_is_part_of(part, whole)
            num_parameters = sum(parameter.numel() for parameter in part.parameters())
            assert num_parameters == num_parameters_of(whole.spec, member)
