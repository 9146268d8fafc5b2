"""The forward pass of ``Decoder``, over its weights, by fused kernels on an NVIDIA card.

What is fused depends on what a step's time goes to. With a row or a few, that is the number of launches and reading
the weights: norms, activations and residual sums are done by the kernels of the matrix products, and attention
normalises, rotates and stores on its way: five launches a layer. (Each norm of several rows begins in the product ahead
of it and ends in the one behind it.) With many rows the matrix products are cuBLAS's, and what lies between them is
fused.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nanovllm.attention.triton.decode_launch import DecodeAttention, DecodeStep
from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from nanovllm.attention.triton.prefill_launch import PrefillStep, attend_chunks, store
from nanovllm.attention.triton.prefix_launch import PrefixAttention
from nanovllm.layers.linear import RowParallelLinear
from nanovllm.layers.triton.elementwise import rms_norm, silu_mul, take_rows
from nanovllm.layers.triton.linear import MAX_FUSED_ROWS, fused_linear, fused_linear_before_norm
from nanovllm.layers.triton.rows import WeightedRows
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
        embedding = self._model.embed_tokens
        is_whole = embedding.vocabulary.is_whole
        # Without ``pdl``: what lies behind it reads the step's plan before its wait.
        hidden = take_rows(embedding.weight, token_ids) if is_whole else embedding(token_ids)  # [num_rows, hidden_size]
        is_small = len(token_ids) <= MAX_FUSED_ROWS
        weighted: WeightedRows | None = None
        pdl = self._pdl
        for index, layer in enumerate(self._model.layers):
            qkv = self._project_qkv(layer, hidden if weighted is None else weighted, is_small)
            out = torch.empty(len(qkv), self.shape.num_heads, self.shape.head_dim, dtype=qkv.dtype, device=qkv.device)
            keys, values = self._pool[0, index], self._pool[1, index]
            transform = self._transforms[index]
            if prefix is not None:
                prefix.attend(qkv, keys, values, transform, step.context_lens, step.block_tables, pdl=pdl)
            attention.attend(step, qkv, keys, values, transform, out, pdl=pdl)
            if is_small:
                hidden, weighted = self._finish_small_layer(index, out.flatten(1), hidden)
            else:
                hidden = self._finish_layer(layer, out.flatten(1), hidden)
        return hidden

    # ---- chunks of prompts -----------------------------------------------------------------------------------

    def prefill(self, token_ids: Tensor, positions: Tensor, slot_mapping: Tensor, step: PrefillStep) -> Tensor:
        """Tensors as in ``StepInputs``; a slot below 0 takes no token. Returns the hidden states ``[num_tokens,
        hidden_size]``."""
        hidden = self._model.embed_tokens(token_ids)  # [num_tokens, hidden_size]
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
            hidden = self._finish_layer(layer, out.flatten(1), hidden)
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """See ``Decoder.compute_logits``; ``hidden`` is not normed yet."""
        head = self._model.embed_tokens if self._model.lm_head is None else self._model.lm_head
        norm = self._model.norm.weight
        if len(hidden) == 1:
            return fused_linear(hidden, head.weight, norm=norm, eps=self._eps, pdl=self._pdl)
        return F.linear(rms_norm(hidden, norm, self._eps, pdl=self._pdl), head.weight)

    # ---- the parts of a layer --------------------------------------------------------------------------------

    def _project_qkv(self, layer: DecoderLayer, hidden: Tensor | WeightedRows, is_small: bool) -> Tensor:
        norm, linear = layer.input_layernorm.weight, layer.self_attn.qkv_proj
        if isinstance(hidden, WeightedRows):
            return fused_linear(hidden, linear.weight, linear.bias, eps=self._eps, pdl=self._pdl)
        if is_small:
            return fused_linear(hidden, linear.weight, linear.bias, norm=norm, eps=self._eps, pdl=self._pdl)
        return F.linear(rms_norm(hidden, norm, self._eps, pdl=self._pdl), linear.weight, linear.bias)

    def _finish_layer(self, layer: DecoderLayer, attended: Tensor, hidden: Tensor) -> Tensor:
        """Output projection and feed-forward network, each added to the residual stream ``hidden``."""
        output, norm = layer.self_attn.o_proj, layer.post_attention_layernorm.weight
        gate_up, down = layer.mlp.gate_up_proj, layer.mlp.down_proj
        hidden = _add_linear(hidden, attended, output)
        normed = rms_norm(hidden, norm, self._eps, pdl=self._pdl)
        gated = silu_mul(F.linear(normed, gate_up.weight, gate_up.bias), pdl=self._pdl)
        return _add_linear(hidden, gated, down)

    def _finish_small_layer(self, index: int, attended: Tensor, hidden: Tensor) -> tuple[Tensor, WeightedRows | None]:
        """``_finish_layer`` of a few rows. Returns what goes into the next layer, too, if its norm has begun."""
        layer, later = self._model.layers[index], self._model.layers[index + 1 :]
        gate_up = layer.mlp.gate_up_proj
        hidden, weighted = self._add_small(
            attended, layer.self_attn.o_proj, hidden, layer.post_attention_layernorm.weight
        )
        if weighted is None:
            norm, rows = layer.post_attention_layernorm.weight, hidden
        else:
            norm, rows = None, weighted
        gated = fused_linear(
            rows, gate_up.weight, gate_up.bias, norm=norm, eps=self._eps, is_gated=True, pdl=self._pdl
        )  # [num_rows, intermediate_size]
        return self._add_small(gated, layer.mlp.down_proj, hidden, later[0].input_layernorm.weight if later else None)

    def _add_small(
        self, x: Tensor, linear: RowParallelLinear, hidden: Tensor, next_norm: Tensor | None
    ) -> tuple[Tensor, WeightedRows | None]:
        """``hidden + x W^T + b``, and the same with the norm that comes next begun, where that pays and is safe."""
        group, weight = linear.group, linear.weight
        if group.size > 1:  # the norm is one of the sum over all ranks
            residual = hidden if group.rank == 0 else None
            return group.all_reduce(fused_linear(x, weight, linear.bias_once, residual=residual, pdl=self._pdl)), None
        if next_norm is None or len(x) == 1 or x.dtype == torch.float16:
            return fused_linear(x, weight, linear.bias, residual=hidden, pdl=self._pdl), None
        return fused_linear_before_norm(x, weight, linear.bias, hidden, next_norm, pdl=self._pdl)


def _weight(norm: torch.nn.Module | None) -> Tensor | None:
    return None if norm is None else norm.weight


def _add_linear(hidden: Tensor, x: Tensor, linear: RowParallelLinear) -> Tensor:
    """``hidden + x W^T + b``, where the product sums into ``hidden`` itself. The first rank of a group adds what they
    all have, and their sums are summed up."""
    if linear.group.rank == 0:
        hidden.addmm_(x, linear.weight.T)
    else:
        torch.mm(x, linear.weight.T, out=hidden)
    if linear.bias_once is not None:
        hidden.add_(linear.bias_once)
    return linear.group.all_reduce(hidden)
