"""Rotary embeddings are those of transformers, to the last bit in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from nanovllm.layers.rotary import RotaryEmbedding, rotate
from nanovllm.model_config import RopeSpec
from nanovllm.model_spec import ModelSpec

HEAD_DIM = 64
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_theta": 100000.0},
    "linear": {"rope_theta": 10000.0, "factor": 2.5},
    "llama3": {
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


@pytest.mark.parametrize("rope_type", ROPES)
def test_rotation_equals_transformers(rope_type: str) -> None:
    parameters = {"rope_type": rope_type, **ROPES[rope_type]}
    reference = LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4, rope_parameters=parameters)
    )
    positions = torch.tensor([0, 1, 2, 77, 1000, 4095])
    query = torch.randn(len(positions), 4, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    heads_first = query.transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(heads_first, heads_first, *reference(query, positions[None]))

    fields = {"theta" if name == "rope_theta" else name: value for name, value in ROPES[rope_type].items()}
    rotary = RotaryEmbedding(RopeSpec(type=rope_type, **fields), HEAD_DIM, max_position=4096)
    assert torch.equal(rotate(query, rotary(positions)), expected[0].transpose(0, 1))


def test_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    rotary = RotaryEmbedding(ModelSpec.preset("llama-3.1-8b").rope, 128, max_position=128)
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 1, 1, 128, generator=generator, dtype=torch.float32).unbind(0)

    def score(query_position: int, key_position: int) -> float:
        turned = (rotate(x, rotary(torch.tensor([at]))) for x, at in ((query, query_position), (key, key_position)))
        return float(torch.mul(*turned).sum())

    assert score(5, 2) == pytest.approx(score(103, 100), abs=1e-4)
    assert torch.linalg.vector_norm(rotate(query, rotary(torch.tensor([99])))) == pytest.approx(
        float(torch.linalg.vector_norm(query)), rel=1e-5
    )


def test_half_precision_is_rotated_in_float32() -> None:
    rotary = RotaryEmbedding(RopeSpec(theta=10000.0), HEAD_DIM, max_position=16)
    query = torch.randn(3, 2, HEAD_DIM, generator=torch.Generator().manual_seed(2)).bfloat16()
    rotation = rotary(torch.tensor([3, 8, 15]))
    assert torch.equal(rotate(query, rotation), rotate(query.float(), rotation).bfloat16())
