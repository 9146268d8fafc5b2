"""A model's config.json, read and checked: every field the decoder depends on, in one spelling.

Hugging Face configs of four families in the spellings of several years come in; the fields of a ``ModelSpec`` come
out. What the decoder would compute wrongly is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nanovllm.checks import is_number, is_whole_number
from nanovllm.errors import ModelError

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""The architectures of config.json that the dense decoder covers."""
ROPE_TYPES = ("default", "linear", "llama3")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """Rotary embedding. ``linear`` uses ``factor``; ``llama3`` all four that follow ``theta``, in the sense of
    Llama 3.1: wavelengths above ``original_max_position_embeddings / low_freq_factor`` tokens are stretched."""

    theta: float
    type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position_embeddings: int = 0


def read_config(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The fields of ``ModelSpec``, by name. Raises ``ModelError`` naming ``source``, field, value and what is
    allowed for anything missing, malformed or not supported."""
    return _ConfigReader(config, source).fields()


class _ConfigReader:
    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self.config = config
        self.source = source

    def fields(self) -> dict[str, Any]:
        architecture = self._architecture()
        family = architecture.removesuffix("ForCausalLM")
        self._refuse_unsupported(family)
        num_heads = self._count("num_attention_heads")
        # The first Llama configs have as many KV heads as heads and don't say so.
        num_kv_heads = self._count("num_key_value_heads", num_heads if family == "Llama" else None)
        if num_heads % num_kv_heads:
            raise self._error("num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads={num_heads}")
        hidden_size = self._count("hidden_size")
        attention_bias = family in ("Llama", "Qwen3") and self._flag("attention_bias")
        return {
            "architecture": architecture,
            "num_layers": self._count("num_hidden_layers"),
            "hidden_size": hidden_size,
            "intermediate_size": self._count("intermediate_size"),
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": self._head_dim(hidden_size, num_heads),
            "vocab_size": self._count("vocab_size"),
            "max_position_embeddings": self._count("max_position_embeddings"),
            "rms_norm_eps": self._positive(self.config, "rms_norm_eps"),
            "rope": self._rope(family),
            "tie_word_embeddings": self._flag("tie_word_embeddings"),
            "qk_norm": family == "Qwen3",
            "qkv_bias": family == "Qwen2" or attention_bias,
            "output_bias": attention_bias,
            "mlp_bias": family == "Llama" and self._flag("mlp_bias"),
            "dtype": self._dtype(),
        }

    # ---- what is refused -------------------------------------------------------------------------------------

    def _architecture(self) -> str:
        names = self.config.get("architectures")
        if not (isinstance(names, list) and len(names) == 1 and names[0] in ARCHITECTURES):
            raise self._error("architectures", names, f"one of {', '.join(ARCHITECTURES)}")
        return str(names[0])

    def _refuse_unsupported(self, family: str) -> None:
        if self.config.get("quantization_config") is not None:
            method = self.config["quantization_config"]
            raise self._error("quantization_config", method, "only unquantised weights are supported")
        for field in ("num_experts", "num_local_experts", "n_routed_experts"):
            if self.config.get(field):
                raise self._error(field, self.config[field], "only dense models are supported")
        activation = self.config.get("hidden_act", "silu")
        if activation != "silu":
            raise self._error("hidden_act", activation, "only silu is supported")
        layer_types = self.config.get("layer_types") or []
        if not isinstance(layer_types, list):
            raise self._error("layer_types", layer_types, "a list, or null")
        for layer_type in layer_types:
            if layer_type != "full_attention":
                raise self._error("layer_types", layer_type, "only full_attention is supported")
        self._refuse_sliding_window(family)

    def _refuse_sliding_window(self, family: str) -> None:
        in_use = self._flag("use_sliding_window", family == "Mistral")
        if not in_use or self.config.get("sliding_window") is None:
            return
        window = self._count("sliding_window")
        if window < self._count("max_position_embeddings"):
            allowed = "only full attention is supported: null, or at least max_position_embeddings"
            raise self._error("sliding_window", window, allowed)

    # ---- parts -----------------------------------------------------------------------------------------------

    def _head_dim(self, hidden_size: int, num_heads: int) -> int:
        if self.config.get("head_dim") is None and hidden_size % num_heads:
            raise self._error("hidden_size", hidden_size, f"a multiple of num_attention_heads={num_heads}")
        head_dim = self._count("head_dim", hidden_size // num_heads)
        if head_dim % 2:
            raise self._error("head_dim", head_dim, "an even number, for the rotary embedding")
        return head_dim

    def _rope(self, family: str) -> RopeSpec:
        """Old spelling: ``rope_theta`` beside ``rope_scaling``; since transformers 5 all in ``rope_parameters``."""
        name = "rope_parameters" if self.config.get("rope_parameters") is not None else "rope_scaling"
        rope = self.config.get(name) or {}
        if not isinstance(rope, Mapping):
            raise self._error(name, rope, "a JSON object, or null")
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        if rope_type not in ROPE_TYPES:
            raise self._error(f"{name}.rope_type", rope_type, f"one of {', '.join(ROPE_TYPES)}")
        partial = rope.get("partial_rotary_factor", self.config.get("partial_rotary_factor"))
        if partial not in (None, 1):
            raise self._error("partial_rotary_factor", partial, "only 1 is supported")
        # Llama configs older than the field mean 10000.
        default_theta = 10000.0 if family == "Llama" and name == "rope_scaling" else None
        holder = rope if "rope_theta" in rope else self.config
        theta = self._positive(holder, "rope_theta", default_theta)
        if rope_type == "default":
            return RopeSpec(theta=theta)
        factor = self._positive(rope, "factor", path=f"{name}.")
        if rope_type == "linear":
            return RopeSpec(theta=theta, type=rope_type, factor=factor)
        low = self._positive(rope, "low_freq_factor", path=f"{name}.")
        high = self._positive(rope, "high_freq_factor", path=f"{name}.")
        if high <= low:
            raise self._error(f"{name}.high_freq_factor", high, f"a number above low_freq_factor={low}")
        return RopeSpec(
            theta=theta,
            type=rope_type,
            factor=factor,
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=int(
                self._positive(rope, "original_max_position_embeddings", path=f"{name}.")
            ),
        )

    def _dtype(self) -> str:
        # transformers 5 renamed torch_dtype; a config without either was saved in torch's default.
        dtype = self.config.get("dtype", self.config.get("torch_dtype")) or "float32"
        if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            raise self._error("dtype", dtype, f"one of {', '.join(DTYPE_BYTES)}")
        return dtype

    # ---- fields ----------------------------------------------------------------------------------------------

    def _error(self, field: str, value: object, allowed: str) -> ModelError:
        return ModelError(f"{self.source}: {field}={value!r} is not allowed: {allowed}")

    def _count(self, field: str, default: int | None = None) -> int:
        value = self.config.get(field)
        value = default if value is None else value
        if not is_whole_number(value, 1):
            raise self._wrong(field, value, "a whole number from 1 upward")
        return value

    def _positive(self, holder: Mapping[str, Any], field: str, default: float | None = None, path: str = "") -> float:
        value = holder.get(field)
        value = default if value is None else value
        if not is_number(value) or value <= 0:
            raise self._wrong(path + field, value, "a number above 0")
        return float(value)

    def _flag(self, field: str, default: bool = False) -> bool:
        value = self.config.get(field)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self._wrong(field, value, "true or false")
        return value

    def _wrong(self, field: str, value: object, allowed: str) -> ModelError:
        if value is None:
            return ModelError(f"{self.source}: {field} is missing: {allowed} is needed")
        return self._error(field, value, allowed)
