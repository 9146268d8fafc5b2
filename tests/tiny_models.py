"""Small random models as transformers makes and saves them: the reference for all that computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB_SIZE = 131

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}


def _llama(**options: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**_SIZES, **options))


def _build(family: str) -> PreTrainedModel:
    if family == "llama":
        return _llama(rope_parameters=LLAMA3_ROPE, attention_bias=True, mlp_bias=True)
    if family == "llama-tied":
        return _llama(rope_parameters=_LINEAR_ROPE, tie_word_embeddings=True)
    if family == "mistral":
        return MistralForCausalLM(MistralConfig(**_SIZES, head_dim=12, sliding_window=None))
    if family == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**_SIZES, tie_word_embeddings=True))
    assert family == "qwen3"
    return Qwen3ForCausalLM(Qwen3Config(**_SIZES, head_dim=16))


FAMILIES = ("llama", "llama-tied", "mistral", "qwen2", "qwen3")
"""Between them: qkv bias, biases everywhere, query and key norms, tied and own heads, head sizes that do not divide the
hidden size, default, linear and llama3 rotary embeddings."""


@torch.no_grad()
def make_model(family: str) -> PreTrainedModel:
    """A model in float32 in which every weight, biases and norms too, is random and matters."""
    torch.manual_seed(FAMILIES.index(family))
    model = _build(family).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.normal_(0.0, 0.2)
    return model


def save_model(family: str, directory: Path) -> Path:
    """Save such a model in one safetensors file."""
    make_model(family).save_pretrained(directory)
    return directory


@torch.inference_mode()
def greedy_tokens(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    """What transformers' own ``generate`` continues ``prompt`` with."""
    input_ids = torch.tensor([prompt])
    output = model.generate(
        input_ids, attention_mask=torch.ones_like(input_ids), do_sample=False, max_new_tokens=num_tokens
    )
    return output[0, len(prompt) :].tolist()
