"""The numbers that follow from a model's shape: parameters, bytes, operations."""

from __future__ import annotations

import pytest

from nanovllm.errors import ModelError
from nanovllm.model_spec import PRESETS, ModelSpec
from tests.test_model_spec import config


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        # As the Hugging Face Hub counts the tensors of the published files.
        ("smollm2-135m", 134_515_008),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("mistral-7b", 7_248_023_552),
    ],
)
def test_presets_have_the_published_number_of_parameters(name: str, num_parameters: int) -> None:
    assert ModelSpec.preset(name).num_parameters == num_parameters


def test_every_preset_has_a_lower_case_name() -> None:
    assert all(name == name.lower() for name in PRESETS)
    with pytest.raises(ModelError, match="model 'gpt-2' is not known: one of smollm2-135m, "):
        ModelSpec.preset("gpt-2")


def test_bytes() -> None:
    spec = ModelSpec.preset("qwen3-0.6b")
    assert spec.weight_bytes == 2 * 596_049_920
    assert spec.kv_bytes_per_token == 114_688


def test_biases_and_norms_are_counted() -> None:
    plain = ModelSpec.from_config(config())
    biased = ModelSpec.from_config(config(attention_bias=True, mlp_bias=True))
    per_layer = (2048 + 2 * 512) + 2048 + 2 * 8192 + 2048
    assert biased.num_parameters - plain.num_parameters == 16 * per_layer
    normed = ModelSpec.from_config(config("Qwen3"))
    assert normed.num_parameters - plain.num_parameters == 16 * 2 * 64


def test_flops() -> None:
    spec = ModelSpec.from_config(config(num_hidden_layers=1))
    embedding = 128256 * 2048
    norms = 3 * 2048
    assert spec.matmul_flops_per_token == 2 * (spec.num_parameters - embedding - norms)
    assert spec.head_flops_per_token == 2 * embedding
    # Three queries on top of four cached tokens see 5, 6 and 7 tokens; 64 numbers in each of 32 heads.
    assert spec.attention_flops(3, 7) == 4 * 64 * 32 * (5 + 6 + 7)
    assert spec.attention_flops(1, 7) == 4 * 64 * 32 * 7
