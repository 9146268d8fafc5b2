"""The dense decoder that Llama, Mistral, Qwen2 and Qwen3 are variants of; a ``ModelSpec`` says which.

Modules are named as in Hugging Face checkpoints, below the prefix ``model.`` there; only the packed layers
(``qkv_proj``, ``gate_up_proj``) hold several of a checkpoint's weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nanovllm.attention.interface import StepAttention
from nanovllm.layers.activation import silu_and_mul
from nanovllm.layers.embedding import Embedding
from nanovllm.layers.group import Group, SingleGroup, VocabularyShard
from nanovllm.layers.linear import Linear, PackedLinear, RowParallelLinear, linear
from nanovllm.layers.norm import RMSNorm
from nanovllm.layers.rotary import RotaryEmbedding, Rotation, rotate
from nanovllm.model_spec import ModelSpec
from nanovllm.models.shard import shard_spec


class SelfAttention(nn.Module):
    """Grouped-query attention: projections around the ``StepAttention`` of the step."""

    def __init__(self, spec: ModelSpec, layer: int, dtype: torch.dtype, group: Group) -> None:
        super().__init__()
        self.layer = layer
        self.sizes = [spec.q_size, spec.kv_size, spec.kv_size]
        self.head_dim = spec.head_dim
        out_sizes = {"q_proj": spec.q_size, "k_proj": spec.kv_size, "v_proj": spec.kv_size}
        self.qkv_proj = PackedLinear(spec.hidden_size, out_sizes, bias=spec.qkv_bias, dtype=dtype)
        self.o_proj = RowParallelLinear(spec.q_size, spec.hidden_size, bias=spec.output_bias, dtype=dtype, group=group)
        self.q_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps, dtype=dtype) if spec.qk_norm else None
        self.k_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps, dtype=dtype) if spec.qk_norm else None

    def forward(self, hidden: Tensor, rotation: Rotation, attend: StepAttention) -> Tensor:
        """``[num_tokens, hidden_size]`` -> the same shape."""
        qkv = self.qkv_proj(hidden)
        query, key, value = (
            part.unflatten(-1, (-1, self.head_dim)) for part in qkv.split(self.sizes, dim=-1)
        )  # each [num_tokens, its heads, head_dim]
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        output = attend(self.layer, rotate(query, rotation), rotate(key, rotation), value)
        return self.o_proj(output.flatten(1))


class MLP(nn.Module):
    """The gated feed-forward network."""

    def __init__(self, spec: ModelSpec, dtype: torch.dtype, group: Group) -> None:
        super().__init__()
        out_sizes = {"gate_proj": spec.intermediate_size, "up_proj": spec.intermediate_size}
        self.gate_up_proj = PackedLinear(spec.hidden_size, out_sizes, bias=spec.mlp_bias, dtype=dtype)
        self.down_proj = RowParallelLinear(
            spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias, dtype=dtype, group=group
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """``[num_tokens, hidden_size]`` -> the same shape."""
        return self.down_proj(silu_and_mul(self.gate_up_proj(hidden)))


class DecoderLayer(nn.Module):
    """Attention and feed-forward network, each added to the residual stream."""

    def __init__(self, spec: ModelSpec, layer: int, dtype: torch.dtype, group: Group) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps, dtype=dtype)
        self.self_attn = SelfAttention(spec, layer, dtype, group)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps, dtype=dtype)
        self.mlp = MLP(spec, dtype, group)

    def forward(self, hidden: Tensor, rotation: Rotation, attend: StepAttention) -> Tensor:
        """``[num_tokens, hidden_size]`` -> the same shape."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, attend)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Decoder(nn.Module):
    """Token ids in, logits out. Made on torch's current device with weights that are yet to be filled."""

    def __init__(self, spec: ModelSpec, *, max_position: int, dtype: torch.dtype, group: Group | None = None) -> None:
        """``spec``: of the whole model. ``max_position``: sequences are at most this long, in tokens. ``group``: the
        ranks among which each layer is shared out; None: it is not."""
        super().__init__()
        group = SingleGroup() if group is None else group
        self.group = group
        self.whole_spec = spec
        self.spec = spec = shard_spec(spec, group)
        """Of what this rank holds."""
        self.vocabulary = VocabularyShard(spec.vocab_size, group)
        self.embed_tokens = Embedding(self.vocabulary, spec.hidden_size, dtype=dtype)
        self.rotary = RotaryEmbedding(spec.rope, spec.head_dim, max_position)
        self.layers = nn.ModuleList(DecoderLayer(spec, layer, dtype, group) for layer in range(spec.num_layers))
        self.norm = RMSNorm(spec.hidden_size, spec.rms_norm_eps, dtype=dtype)
        tied, num_own = spec.tie_word_embeddings, len(self.vocabulary.token_ids)
        self.lm_head = None if tied else Linear(spec.hidden_size, num_own, bias=False, dtype=dtype)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: StepAttention) -> Tensor:
        """``token_ids``, ``positions``: ``[num_tokens]`` int64. Returns the hidden states
        ``[num_tokens, hidden_size]``, normalised, ready for ``compute_logits``."""
        hidden = self.embed_tokens(token_ids)
        rotation = self.rotary(positions)
        for layer in self.layers:
            hidden = layer(hidden, rotation, attend)
        return self.norm(hidden)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """``[n, hidden_size]`` -> ``[n, vocab_size]``, or of these the columns of this rank's token ids."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return linear(hidden, head.weight)
