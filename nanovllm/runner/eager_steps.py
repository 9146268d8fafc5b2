"""Steps in plain torch, on any device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nanovllm.attention.interface import Attention
from nanovllm.config import Config
from nanovllm.engine.sequence import Sequence
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.graphs import GraphSizes
from nanovllm.runner.inputs import build_step_inputs
from nanovllm.runner.sampler import build_sampling_inputs, sample
from nanovllm.runner.steps import do_nothing


class EagerSteps:
    """Computes steps over ``model`` and the KV pool of ``attention``; one object for each pool."""

    takes_unknown_tokens = False

    def __init__(
        self, config: Config, spec: ModelSpec, model: Decoder, attention: Attention, device: torch.device
    ) -> None:
        self._config = config
        self._vocab_size = spec.vocab_size
        self._model = model
        self._attention = attention
        self._device = device
        self.before_launch: Callable[[], object] = do_nothing
        self.graph_sizes = GraphSizes()

    def record_graphs(self) -> None:
        """See ``Steps``. There is nothing to record."""

    def measure_graph_bytes(self) -> int:
        """See ``Steps``."""
        return 0

    @torch.inference_mode()
    def compute(self, sequences: list[Sequence]) -> Tensor:
        """One sampled token for each sequence, ``[num_seqs]``."""
        inputs = build_step_inputs(sequences, self._config.kvcache_block_size, self._device)
        sampling_inputs = build_sampling_inputs(sequences, self._config.seed, self._vocab_size, self._device)
        self.before_launch()
        attend = self._attention.begin_step(inputs.attention)
        hidden = self._model(inputs.token_ids, inputs.positions, attend)  # [num_tokens, hidden_size]
        logits = self._model.compute_logits(hidden[inputs.last_rows])  # [num_seqs, own token ids]
        return sample(logits, sampling_inputs, self._model.vocabulary)
