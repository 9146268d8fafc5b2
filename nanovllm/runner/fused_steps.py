"""Steps on an NVIDIA card by fused kernels: prompts launch by launch, decode steps as CUDA graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from nanovllm.attention.triton.decode_launch import DecodeAttention
from nanovllm.attention.triton.prefill_launch import plan_prefill
from nanovllm.attention.triton.prefix_launch import PrefixAttention
from nanovllm.config import Config
from nanovllm.engine.sequence import Sequence
from nanovllm.layers.triton.sampling import draw
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.models.fused_decoder import FusedDecoder
from nanovllm.runner.decode_graphs import DecodeGraphs
from nanovllm.runner.decode_rows import DecodeRows, SampledTokens
from nanovllm.runner.inputs import build_step_inputs
from nanovllm.runner.sampler import build_sampling_inputs, sample


class FusedSteps:
    """Computes steps over ``model`` and the KV ``pool``; one object for each pool."""

    def __init__(self, config: Config, spec: ModelSpec, model: Decoder, pool: Tensor) -> None:
        device, block_size = pool.device, pool.shape[3]
        max_rows = config.max_num_seqs
        self._config = config
        self._vocab_size = spec.vocab_size
        self._dtype = pool.dtype
        is_hopper = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        self._decoder = FusedDecoder(model, spec, pool, pdl=is_hopper)
        shape = self._decoder.shape
        self._rows = DecodeRows(max_rows, -(-config.max_model_len // block_size), config.seed, device)
        self._attention = DecodeAttention(shape, max_seqs=max_rows, dtype=pool.dtype, device=device)
        self._prefix = PrefixAttention(shape, max_seqs=max_rows, block_size=block_size, dtype=pool.dtype, device=device)
        self._shares_prefixes = False
        self._last: SampledTokens | None = None
        self._decode = self._decode_rows if config.enforce_eager else self._record()

    def _record(self) -> DecodeGraphs:
        graphs = DecodeGraphs(self._decode_rows, self._rows.max_rows)
        graphs.record()
        return graphs

    def compute(self, sequences: list[Sequence]) -> Tensor:
        """See ``Steps``. The newest token of a sequence may be ``UNKNOWN_TOKEN`` if the step before sampled it."""
        with torch.inference_mode():
            if all(seq.num_cached_tokens == seq.num_tokens - 1 for seq in sequences):
                tokens = self._compute_decodes(sequences)
            else:
                tokens = self._compute_chunks(sequences)
        self._last = SampledTokens(tokens, sequences)
        return tokens

    def _compute_decodes(self, sequences: list[Sequence]) -> Tensor:
        num_rows = len(sequences)
        if self._rows.update(sequences, self._last):
            self._shares_prefixes = num_rows > 1 and self._prefix.plan(*self._rows.on_host(num_rows)) > 0
        logits = self._decode(num_rows, self._shares_prefixes)
        if any(_is_filtered(seq) for seq in sequences):
            self._rows.token_ids[:num_rows] = self._sample_filtered(logits, sequences)
        return self._rows.token_ids[:num_rows]

    def _decode_rows(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        """A decode step of the first rows: draws their next tokens, moves them on, returns the logits."""
        rows, prefix = self._rows, self._prefix
        context_lens, token_ids = rows.context_lens[:num_rows], rows.token_ids[:num_rows]
        step = self._attention.plan(
            context_lens, rows.block_tables[:num_rows], prefix=prefix.step if shares_prefixes else None
        )
        logits = self._decoder.decode(token_ids, step, self._attention, prefix if shares_prefixes else None)
        draw(logits, rows.temperatures[:num_rows], rows.seed_keys[:, :num_rows], context_lens, token_ids)
        context_lens += context_lens > 0
        return logits

    def _compute_chunks(self, sequences: list[Sequence]) -> Tensor:
        device = self._rows.token_ids.device
        inputs = build_step_inputs(sequences, self._config.kvcache_block_size, device)
        sampling_inputs = build_sampling_inputs(sequences, self._config.seed, self._vocab_size, device)
        lens, tables = inputs.attention, inputs.attention.block_tables
        step = plan_prefill(lens.query_lens, lens.context_lens, tables, self._decoder.shape, dtype=self._dtype)
        logits = self._decoder.prefill(inputs.token_ids, inputs.positions, lens.slot_mapping, inputs.last_rows, step)
        return sample(logits, sampling_inputs).int()

    def _sample_filtered(self, logits: Tensor, sequences: list[Sequence]) -> Tensor:
        inputs = build_sampling_inputs(sequences, self._config.seed, self._vocab_size, logits.device)
        return sample(logits, inputs).int()


def _is_filtered(seq: Sequence) -> bool:
    params = seq.sampling_params
    return params.temperature > 0 and (params.top_k > 0 or params.top_p < 1 or params.min_p > 0)
