"""What a model is made of, read from its config.json: enough to build it, to weigh it and to predict its speed.

No torch in here: the runner shapes the decoder by a ``ModelSpec``, the simulator prices a step by the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

from nanovllm.errors import ConfigError, ModelError
from nanovllm.limited_reading import read_whole
from nanovllm.model_config import DTYPE_BYTES, RopeSpec, read_config


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Shape and options of a dense decoder. Sizes are those of the whole model, not of a tensor-parallel shard."""

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeSpec
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    """RMSNorm over each head of queries and keys, before the rotary embedding."""
    qkv_bias: bool = False
    output_bias: bool = False
    """Bias of the attention's output projection."""
    mlp_bias: bool = False
    dtype: str = "bfloat16"
    """Type the weights are stored in; a key of ``DTYPE_BYTES``."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], source: str = "config.json") -> ModelSpec:
        """Read a Hugging Face config. Raises ``ModelError`` naming ``source``, field, value and what is allowed
        for anything missing or not supported."""
        return cls(**read_config(config, source))

    @classmethod
    def from_directory(cls, directory: str | Path) -> ModelSpec:
        """Read ``config.json`` of a model directory. Raises ``ModelError``."""
        path = Path(directory) / "config.json"
        try:
            config = json.loads(read_whole(path).decode("utf-8-sig"))  # some editors put a byte order mark
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror}); a model directory needs it") from None
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: is not JSON ({error})") from None
        if not isinstance(config, dict):
            raise ModelError(f"{path}: holds a {type(config).__name__}, a JSON object is needed")
        return cls.from_config(config, str(path))

    @classmethod
    def preset(cls, name: str) -> ModelSpec:
        """A well-known model by name, see ``PRESETS``; upper case is the same as lower case, and an organisation before
        the name (``meta-llama/``) says nothing. Raises ``ModelError``."""
        try:
            return PRESETS[name.rpartition("/")[2].lower()]
        except KeyError:
            raise ModelError(f"model {name!r} is not known: one of {', '.join(PRESETS)}") from None

    @classmethod
    def find(cls, name: str) -> ModelSpec:
        """The model that ``name`` stands for wherever models are named: a directory, if there is one, else a preset.
        Raises ``ModelError``."""
        return cls.from_directory(name) if Path(name).is_dir() else cls.preset(name)

    # ---- tensor parallelism ------------------------------------------------------------------------------------

    def check_tensor_parallel_size(self, size: int) -> None:
        """Raise ``ConfigError`` if the model cannot be shared out among ``size`` GPUs."""
        if self.num_heads % size or size > min(self.intermediate_size, self.vocab_size):
            sizes = [str(n) for n in range(1, self.num_heads + 1) if self.num_heads % n == 0]
            allowed = f"a divisor of this model's {self.num_heads} heads: {', '.join(sizes)}"
            raise ConfigError("tensor_parallel_size", size, allowed)

    def share_of(self, num_gpus: int) -> ModelSpec:
        """What one of ``num_gpus`` GPUs holds, the largest share where they cannot be equal: query heads with the KV
        heads that they read, parts of the feed-forward network and of the vocabulary.

        Where GPUs outnumber KV heads, several hold the same one; ``nanovllm.models.shard`` says which each holds.
        Raises ``ConfigError``, see ``check_tensor_parallel_size``.
        """
        self.check_tensor_parallel_size(num_gpus)
        num_heads = self.num_heads // num_gpus
        num_readers = self.num_heads // self.num_kv_heads
        return replace(
            self,
            num_heads=num_heads,
            num_kv_heads=num_heads // gcd(num_heads, num_readers),
            intermediate_size=-(-self.intermediate_size // num_gpus),
            vocab_size=-(-self.vocab_size // num_gpus),
        )

    # ---- sizes ---------------------------------------------------------------------------------------------

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one stored weight, and of one number of the KV cache."""
        return DTYPE_BYTES[self.dtype]

    @property
    def q_size(self) -> int:
        """Numbers in the queries of one token and layer."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Numbers in the keys (and as many in the values) of one token and layer."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_layer_matrix_weights(self) -> int:
        """Weights of one layer's matrices: packed qkv, output, packed gate and up, down."""
        attention = (2 * self.q_size + 2 * self.kv_size) * self.hidden_size
        return attention + 3 * self.intermediate_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights, the shared embedding of tied models counted once."""
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        biases = (self.q_size + 2 * self.kv_size) * self.qkv_bias + self.hidden_size * self.output_bias
        biases += (2 * self.intermediate_size + self.hidden_size) * self.mlp_bias
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        layers = self.num_layers * (self.num_layer_matrix_weights + norms + biases)
        return embeddings + layers + self.hidden_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights as stored."""
        return self.num_parameters * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache that one token takes over all layers."""
        return 2 * self.num_layers * self.kv_size * self.dtype_bytes

    # ---- work ------------------------------------------------------------------------------------------------

    @property
    def matmul_flops_per_token(self) -> int:
        """Floating-point operations of the layers' matrix products for one token: two per weight. Without the
        head, which only sampled tokens pass: see ``head_flops_per_token``."""
        return 2 * self.num_layers * self.num_layer_matrix_weights

    @property
    def head_flops_per_token(self) -> int:
        """Floating-point operations of the output head for one token."""
        return 2 * self.vocab_size * self.hidden_size

    def attention_flops(self, num_query_tokens: int, num_kv_tokens: int) -> int:
        """Floating-point operations of causal attention over all layers for one sequence.

        The queries are the last ``num_query_tokens`` of ``num_kv_tokens`` tokens, each sees itself and all
        before it; a pair costs two operations per number for the score and two for the weighted sum.
        """
        first_seen = num_kv_tokens - num_query_tokens
        pairs = num_query_tokens * first_seen + num_query_tokens * (num_query_tokens + 1) // 2
        return 4 * self.num_layers * self.q_size * pairs


def _llama3_rope(factor: float) -> RopeSpec:
    return RopeSpec(
        theta=500000.0,
        type="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )


def _preset(
    architecture: str, sizes: tuple[int, ...], rope: RopeSpec | float, eps: float, tied: bool = False
) -> ModelSpec:
    """``sizes`` in the order of the heading of ``PRESETS``."""
    num_layers, hidden, intermediate, num_heads, num_kv_heads, head_dim, vocab, max_positions = sizes
    return ModelSpec(
        architecture=architecture + "ForCausalLM",
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        max_position_embeddings=max_positions,
        rms_norm_eps=eps,
        rope=rope if isinstance(rope, RopeSpec) else RopeSpec(theta=rope),
        tie_word_embeddings=tied,
        qk_norm=architecture == "Qwen3",
        qkv_bias=architecture == "Qwen2",
    )


PRESETS: dict[str, ModelSpec] = {
    # layers, hidden, intermediate, heads, KV heads, head dim, vocabulary, positions
    "smollm2-135m": _preset("Llama", (30, 576, 1536, 9, 3, 64, 49152, 8192), 100000.0, 1e-5, True),
    "smollm2-360m": _preset("Llama", (32, 960, 2560, 15, 5, 64, 49152, 8192), 100000.0, 1e-5, True),
    "smollm2-1.7b": _preset("Llama", (24, 2048, 8192, 32, 32, 64, 49152, 8192), 130000.0, 1e-5, True),
    "qwen2.5-0.5b": _preset("Qwen2", (24, 896, 4864, 14, 2, 64, 151936, 32768), 1e6, 1e-6, True),
    "qwen2.5-1.5b": _preset("Qwen2", (28, 1536, 8960, 12, 2, 128, 151936, 32768), 1e6, 1e-6, True),
    "qwen2.5-7b": _preset("Qwen2", (28, 3584, 18944, 28, 4, 128, 152064, 32768), 1e6, 1e-6),
    "qwen3-0.6b": _preset("Qwen3", (28, 1024, 3072, 16, 8, 128, 151936, 40960), 1e6, 1e-6, True),
    "qwen3-1.7b": _preset("Qwen3", (28, 2048, 6144, 16, 8, 128, 151936, 40960), 1e6, 1e-6, True),
    "qwen3-4b": _preset("Qwen3", (36, 2560, 9728, 32, 8, 128, 151936, 40960), 1e6, 1e-6, True),
    "qwen3-8b": _preset("Qwen3", (36, 4096, 12288, 32, 8, 128, 151936, 40960), 1e6, 1e-6),
    "qwen3-14b": _preset("Qwen3", (40, 5120, 17408, 40, 8, 128, 151936, 40960), 1e6, 1e-6),
    "qwen3-32b": _preset("Qwen3", (64, 5120, 25600, 64, 8, 128, 151936, 40960), 1e6, 1e-6),
    "llama-3.2-1b": _preset("Llama", (16, 2048, 8192, 32, 8, 64, 128256, 131072), _llama3_rope(32.0), 1e-5, True),
    "llama-3.2-3b": _preset("Llama", (28, 3072, 8192, 24, 8, 128, 128256, 131072), _llama3_rope(32.0), 1e-5, True),
    "llama-3.1-8b": _preset("Llama", (32, 4096, 14336, 32, 8, 128, 128256, 131072), _llama3_rope(8.0), 1e-5),
    "llama-3.1-70b": _preset("Llama", (80, 8192, 28672, 64, 8, 128, 128256, 131072), _llama3_rope(8.0), 1e-5),
    "llama-2-7b": _preset("Llama", (32, 4096, 11008, 32, 32, 128, 32000, 4096), 10000.0, 1e-5),
    "mistral-7b": _preset("Mistral", (32, 4096, 14336, 32, 8, 128, 32768, 32768), 1e6, 1e-5),
}
"""Well-known models, as their config.json on the Hugging Face Hub gives them (``mistral-7b``: v0.3, without sliding
window; the instruction-tuned SmolLM2, Qwen2.5 and Llama models have the same shapes as these)."""
