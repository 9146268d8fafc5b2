"""The forward pass of ``Decoder``, over its weights, by fused kernels on an NVIDIA card.

What is fused depends on what a step's time goes to. With a row or a few, that is the number of launches and reading
the weights: norms, activations and residual sums are done by the kernels of the matrix products, and attention
normalises, rotates and stores on its way: five launches a layer. With many rows the matrix products are cuBLAS's, and
what lies between them is fused.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nanovllm.attention.triton.decode_launch import DecodeAttention, DecodeStep
from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from nanovllm.attention.triton.prefill_launch import PrefillStep, attend_chunks, store
from nanovllm.attention.triton.prefix_launch import PrefixAttention
from nanovllm.layers.triton.elementwise import rms_norm, silu_mul
from nanovllm.layers.triton.linear import MAX_FUSED_ROWS, fused_linear
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder, DecoderLayer


class FusedDecoder:
    """Shares the weights of ``model``; ``pool`` is the KV pool ``[2, num_layers, num_blocks, block_size, num_kv_heads,
    head_dim]``. ``pdl``: launches may overlap (programmatic dependent launch, from Hopper on)."""

    def __init__(self, model: Decoder, spec: ModelSpec, pool: Tensor, *, pdl: bool) -> None:
        self.shape = HeadShape(spec.num_heads, spec.num_kv_heads, spec.head_dim)
        self._model = model
        self._eps = spec.rms_norm_eps
        self._pool = pool
        self._pdl = pdl
        cos, sin = model.rotary.table  # [max_position, head_dim / 2] float32 each
        self._transforms = [
            HeadTransform(cos, sin, _weight(attn.q_norm), _weight(attn.k_norm), spec.rms_norm_eps)
            for attn in (layer.self_attn for layer in model.layers)
        ]

    # ---- one token a sequence --------------------------------------------------------------------------------

    def decode(
        self, token_ids: Tensor, step: DecodeStep, attention: DecodeAttention, prefix: PrefixAttention | None
    ) -> Tensor:
        """``token_ids`` ``[num_rows]``: each sequence's newest token. Returns the hidden states ``[num_rows,
        hidden_size]``, ready for ``compute_logits``."""
        hidden = F.embedding(token_ids, self._model.embed_tokens.weight)  # [num_rows, hidden_size]
        is_small = len(token_ids) <= MAX_FUSED_ROWS
        # Kernels that begin before the one ahead ends must all be ours.
        pdl = self._pdl and is_small
        for index, layer in enumerate(self._model.layers):
            qkv = self._project_qkv(layer, hidden, is_small)
            out = torch.empty(len(qkv), self.shape.num_heads, self.shape.head_dim, dtype=qkv.dtype, device=qkv.device)
            keys, values = self._pool[0, index], self._pool[1, index]
            transform = self._transforms[index]
            if prefix is not None:
                prefix.attend(qkv, keys, values, transform, step.context_lens, step.block_tables, pdl=pdl)
            attention.attend(step, qkv, keys, values, transform, out, pdl=pdl)
            hidden = self._finish_layer(layer, out.flatten(1), hidden, is_small)
        return hidden

    # ---- chunks of prompts -----------------------------------------------------------------------------------

    def prefill(
        self, token_ids: Tensor, positions: Tensor, slot_mapping: Tensor, last_rows: Tensor, step: PrefillStep
    ) -> Tensor:
        """Tensors as in ``StepInputs``. Returns the hidden state of each sequence's last token ``[num_seqs,
        hidden_size]``."""
        hidden = F.embedding(token_ids, self._model.embed_tokens.weight)  # [num_tokens, hidden_size]
        heads = (self.shape.num_heads, self.shape.head_dim)
        for index, layer in enumerate(self._model.layers):
            qkv = self._project_qkv(layer, hidden, is_small=False)
            keys, values = self._pool[0, index], self._pool[1, index]
            query = qkv[:, : heads[0] * heads[1]].unflatten(1, heads)
            query = store(
                qkv, positions, slot_mapping, keys, values, query, self._transforms[index], self.shape
            )  # [num_tokens, num_heads, head_dim], rotated where they lie
            out = torch.empty(len(qkv), *heads, dtype=qkv.dtype, device=qkv.device)
            attend_chunks(step, query, keys, values, out, self.shape)
            hidden = self._finish_layer(layer, out.flatten(1), hidden, is_small=False)
        return hidden[last_rows]

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """``[n, hidden_size]`` -> ``[n, vocab_size]``."""
        head = self._model.embed_tokens if self._model.lm_head is None else self._model.lm_head
        return F.linear(rms_norm(hidden, self._model.norm.weight, self._eps), head.weight)

    # ---- the parts of a layer --------------------------------------------------------------------------------

    def _project_qkv(self, layer: DecoderLayer, hidden: Tensor, is_small: bool) -> Tensor:
        norm, linear = layer.input_layernorm.weight, layer.self_attn.qkv_proj
        if is_small:
            return fused_linear(hidden, linear.weight, linear.bias, norm=norm, eps=self._eps, pdl=self._pdl)
        return F.linear(rms_norm(hidden, norm, self._eps), linear.weight, linear.bias)

    def _finish_layer(self, layer: DecoderLayer, attended: Tensor, hidden: Tensor, is_small: bool) -> Tensor:
        """Output projection and feed-forward network, each added to the residual stream ``hidden``."""
        output, norm = layer.self_attn.o_proj, layer.post_attention_layernorm.weight
        gate_up, down = layer.mlp.gate_up_proj, layer.mlp.down_proj
        if is_small:
            pdl = self._pdl
            hidden = fused_linear(attended, output.weight, output.bias, residual=hidden, pdl=pdl)
            gated = fused_linear(
                hidden, gate_up.weight, gate_up.bias, norm=norm, eps=self._eps, is_gated=True, pdl=pdl
            )  # [num_rows, intermediate_size]
            return fused_linear(gated, down.weight, down.bias, residual=hidden, pdl=pdl)
        hidden = _add_linear(hidden, attended, output.weight, output.bias)
        gated = silu_mul(F.linear(rms_norm(hidden, norm, self._eps), gate_up.weight, gate_up.bias))
        return _add_linear(hidden, gated, down.weight, down.bias)


def _weight(norm: torch.nn.Module | None) -> Tensor | None:
    return None if norm is None else norm.weight


def _add_linear(hidden: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``hidden + x W^T + b``: the product sums into ``hidden`` itself."""
    hidden.addmm_(x, weight.T)
    return hidden if bias is None else hidden.add_(bias)
