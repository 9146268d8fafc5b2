"""Steps on an NVIDIA card by fused kernels: all but large ones as CUDA graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from nanovllm.attention.triton.decode_launch import DecodeAttention
from nanovllm.attention.triton.prefill_launch import plan_prefill
from nanovllm.attention.triton.prefix_launch import PrefixAttention
from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.models.fused_decoder import FusedDecoder
from nanovllm.runner.chunk_graphs import ChunkGraphs
from nanovllm.runner.inputs import StepInputs
from nanovllm.runner.row_steps import RowSteps


class FusedSteps(RowSteps):
    """Computes steps over ``model`` and the KV ``pool``; one object for each pool."""

    _has_prefix_kernels = True

    def __init__(self, config: Config, spec: ModelSpec, model: Decoder, pool: Tensor) -> None:
        super().__init__(config, model.vocabulary, pool)
        device, block_size = pool.device, pool.shape[3]
        max_rows = config.max_num_seqs
        self._dtype = pool.dtype
        # Kernels that begin before the one ahead ends must all be ours, and what a group does is not.
        is_alone, is_card = model.group.size == 1, device.type == "cuda"
        self._pdl = is_alone and is_card and torch.cuda.get_device_capability(device) >= (9, 0)
        self._decoder = FusedDecoder(model, spec, pool, pdl=self._pdl)
        shape = self._decoder.shape
        self._attention = DecodeAttention(shape, max_seqs=max_rows, dtype=pool.dtype, device=device)
        self._prefix = PrefixAttention(shape, max_seqs=max_rows, block_size=block_size, dtype=pool.dtype, device=device)
        # On all ranks the same, however their parts differ: they must take the same graphs.
        self._flops_per_token = model.whole_spec.matmul_flops_per_token // model.group.size
        self._chunk_graphs: ChunkGraphs | None = None

    def record_graphs(self) -> None:
        """See ``Steps``."""
        super().record_graphs()
        if not self._config.enforce_eager:
            graphs = self._new_chunk_graphs()
            graphs.record()
            self._vocabulary.group.before_abort(graphs.release)
            self._chunk_graphs = graphs
            self.graph_sizes = self.graph_sizes._replace(chunks=tuple(graphs.sizes))

    def measure_graph_bytes(self) -> int:
        """See ``Steps``."""
        chunk_bytes = 0 if self._config.enforce_eager else self._new_chunk_graphs().measure_bytes()
        return super().measure_graph_bytes() + chunk_bytes

    def _new_chunk_graphs(self) -> ChunkGraphs:
        config = self._config
        return ChunkGraphs(
            self._decoder,
            max_step_tokens=config.max_num_batched_tokens,
            max_seqs=config.max_num_seqs,
            max_blocks=-(-config.max_model_len // config.kvcache_block_size),
            flops_per_token=self._flops_per_token,
            dtype=self._dtype,
            device=self._device,
        )

    def _find_prefixes(self, num_rows: int) -> bool:
        return num_rows > 1 and self._prefix.plan(*self._rows.on_host(num_rows)) > 0

    def _compute_rows(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        rows, prefix = self._rows, self._prefix
        # Launched without ``pdl``: the plan begins when the draws of the step before, which move the rows on, have
        # ended. The embedding behind it is launched so, too. All kernels of the layers and the draw come after it, and
        # may read plan and rows before they wait for the one ahead.
        step = self._attention.plan(
            rows.context_lens[:num_rows],
            rows.block_tables[:num_rows],
            prefix=prefix.step if shares_prefixes else None,
        )
        token_ids = rows.token_ids[:num_rows]
        return self._decoder.decode(token_ids, step, self._attention, prefix if shares_prefixes else None)

    def _compute_prompts(self, inputs: StepInputs) -> Tensor:
        hidden = None if self._chunk_graphs is None else self._chunk_graphs.compute(inputs)
        if hidden is None:
            lens, tables = inputs.attention, inputs.attention.block_tables
            step = plan_prefill(lens.query_lens, lens.context_lens, tables, self._decoder.shape, dtype=self._dtype)
            hidden = self._decoder.prefill(inputs.token_ids, inputs.positions, lens.slot_mapping, step)
        return hidden[inputs.last_rows]

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        return self._decoder.compute_logits(hidden)
