"""The small layers against transformers' or torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from nanovllm.layers.activation import silu_and_mul
from nanovllm.layers.embedding import Embedding
from nanovllm.layers.group import SingleGroup, VocabularyShard
from nanovllm.layers.linear import PackedLinear
from nanovllm.layers.norm import RMSNorm


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_equals_transformers(dtype: torch.dtype) -> None:
    norm, reference = RMSNorm(48, 1e-5, dtype=dtype), LlamaRMSNorm(48, 1e-5).to(dtype)
    norm.weight.copy_(randn(48))
    reference.weight.data.copy_(randn(48))
    x = (10 * randn(7, 3, 48)).to(dtype)
    assert torch.equal(norm(x), reference(x))


def test_rms_norm_of_large_half_precision_numbers_does_not_overflow() -> None:
    norm = RMSNorm(4, 1e-5, dtype=torch.float16)
    norm.weight.fill_(1.0)
    assert torch.equal(norm(torch.full((1, 4), 60000.0).half()), torch.ones(1, 4).half())


def test_packed_linear_is_its_parts_side_by_side() -> None:
    packed = PackedLinear(6, {"a": 4, "b": 2, "c": 3}, bias=True, dtype=torch.float32)
    parts = {name: nn.Linear(6, size) for name, size in (("a", 4), ("b", 2), ("c", 3))}
    assert packed.bias is not None
    for name, part in parts.items():
        packed.parts(packed.weight)[name].copy_(part.weight.data)
        packed.parts(packed.bias)[name].copy_(part.bias.data)
    x = randn(5, 6)
    expected = torch.cat([part(x) for part in parts.values()], dim=-1)
    torch.testing.assert_close(packed(x), expected)


def test_silu_and_mul() -> None:
    gate, up = randn(3, 8), randn(8, 3).T
    torch.testing.assert_close(silu_and_mul(torch.cat((gate, up), -1)), gate / (1 + (-gate).exp()) * up)


def test_embedding_picks_rows() -> None:
    embedding = Embedding(VocabularyShard(5, SingleGroup()), 2, dtype=torch.float32)
    embedding.weight.copy_(torch.arange(10.0).view(5, 2))
    assert embedding(torch.tensor([4, 0])).tolist() == [[8.0, 9.0], [0.0, 1.0]]
