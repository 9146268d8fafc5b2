"""Models of realistic width with random weights, as transformers makes and saves them, and what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.tiny_models import LLAMA3_ROPE

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB_SIZE = 2048
MAX_POSITION = 512

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_POSITION,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def _sizes(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int) -> dict[str, Any]:
    return _COMMON | {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


SIZES: dict[str, tuple[type[PreTrainedModel], PretrainedConfig]] = {
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(**_sizes(1024, 2048, 4, 16, 4), rope_parameters=LLAMA3_ROPE, attention_bias=True, mlp_bias=True),
    ),
    "mistral": (MistralForCausalLM, MistralConfig(**_sizes(1024, 2048, 4, 9, 3), head_dim=96, sliding_window=None)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**_sizes(1024, 2048, 4, 4, 2))),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**_sizes(1024, 2048, 4, 8, 4), head_dim=128)),
    "small": (Qwen3ForCausalLM, Qwen3Config(**_sizes(256, 512, 2, 4, 2), head_dim=64)),
}
"""Of each family one with heads of another size: 64, 96, 256 and 128 numbers; and a small one, where a test is about
steps and not about sizes."""
WIDE_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@torch.no_grad()
def save_wide_model(name: str, directory: Path) -> Path:
    """Save such a model in bfloat16. All weights are random and matter: sums neither vanish nor grow from layer to
    layer, and attention has its favourites."""
    model_class, config = SIZES[name]
    torch.manual_seed(list(SIZES).index(name))
    model = model_class(config)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("norm.weight"):
            parameter.uniform_(0.5, 1.5)
        elif parameter.dim() == 1:
            parameter.normal_(0.0, 0.2)
        elif parameter_name.endswith("embed_tokens.weight"):
            parameter.normal_(0.0, 1.0)
        else:
            parameter.normal_(0.0, parameter.shape[1] ** -0.5 * (3.0 if "q_proj" in parameter_name else 1.0))
    model.bfloat16().save_pretrained(directory)
    return directory


class Reference:
    """transformers' model of a directory: exact, and as it rounds in a type."""

    def __init__(self, directory: Path, dtype: torch.dtype, *, exact_weights: torch.dtype | None = None) -> None:
        """``dtype`` is that of the rounded one. The exact one has the same weights, or those that are rounded to
        ``exact_weights``, and computes in float64 (but for norms and angles, for which transformers takes float32)."""
        self._rounded = _load(directory, dtype, dtype)
        self._exact = _load(directory, exact_weights or dtype, torch.float64)

    def exact_logits(self, token_ids: list[int]) -> Tensor:
        """``[num_tokens, vocab_size]`` float64: after each of these tokens."""
        return _logits(self._exact, token_ids)

    def rounded_logits(self, token_ids: list[int]) -> Tensor:
        """The same with all roundings, as float64."""
        return _logits(self._rounded, token_ids)


def _load(directory: Path, weights: torch.dtype, compute: torch.dtype) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=weights).to(DEVICE).eval()
    for parameter in model.parameters():  # the frequencies of the rotary embedding are none, and stay in float32
        parameter.data = parameter.data.to(compute)
    return model


@torch.inference_mode()
def _logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    return model(torch.tensor([token_ids], device=DEVICE), use_cache=False).logits[0].double()
