"""Steps by the plain decoder with flash-attn's attention; decode steps as CUDA graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from nanovllm.attention.flash_attention import FlashAttention
from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.inputs import StepInputs
from nanovllm.runner.row_steps import RowSteps


class FlashSteps(RowSteps):
    """Computes steps over ``model`` and the KV ``pool``; one object for each pool."""

    def __init__(self, config: Config, spec: ModelSpec, model: Decoder, pool: Tensor) -> None:
        super().__init__(config, model.vocabulary, pool)
        self._model = model
        self._attention = FlashAttention(pool)
        self._block_size = pool.shape[3]
        self._row_numbers = torch.arange(config.max_num_seqs, device=pool.device)

    def _compute_rows(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        rows = self._rows
        # Empty rows repeat the first one, down to what they write and where: any other place may be a sequence's. While
        # graphs are recorded that one is empty too, but so is the pool.
        source = torch.where(rows.context_lens[:num_rows] > 0, self._row_numbers[:num_rows], 0)
        context_lens = rows.context_lens[source].clamp(min=1)
        block_tables = rows.block_tables[source]
        positions = context_lens - 1  # [num_rows] int32
        blocks = block_tables.gather(1, (positions // self._block_size).long()[:, None])[:, 0]
        slots = blocks.long() * self._block_size + positions % self._block_size
        attend = self._attention.begin_decode(slots, context_lens, block_tables)
        hidden: Tensor = self._model(rows.token_ids[source], positions, attend)
        return hidden

    def _compute_prompts(self, inputs: StepInputs) -> Tensor:
        attend = self._attention.begin_step(inputs.attention)
        hidden: Tensor = self._model(inputs.token_ids, inputs.positions, attend)  # [num_tokens, hidden_size]
        return hidden[inputs.last_rows]

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        return self._model.compute_logits(hidden)
