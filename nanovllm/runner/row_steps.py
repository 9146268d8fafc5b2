"""Steps on a card on which the sequences that decode are rows that stay there.

A decode step is a CUDA graph over these rows, its draws included, and takes from the card what the step before sampled.
How other steps are launched is a subclass's matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nanovllm.attention.to_device import to_device
from nanovllm.config import Config
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.layers.group import VocabularyShard
from nanovllm.layers.triton.sampling import draw
from nanovllm.runner.decode_graphs import DecodeBody, DecodeGraphs
from nanovllm.runner.decode_rows import DecodeRows, SampledTokens
from nanovllm.runner.graphs import GraphSizes
from nanovllm.runner.inputs import StepInputs, build_step_inputs
from nanovllm.runner.sampler import SamplingInputs, build_sampling_inputs, sample, seed_keys
from nanovllm.runner.steps import do_nothing


class RowSteps(ABC):
    """``Steps`` over one KV ``pool``; a subclass says how logits are computed."""

    takes_unknown_tokens = True
    _has_prefix_kernels = False
    """Whether there are other kernels for batches that share prefixes."""
    _pdl = False
    """Whether launches of our kernels overlap (programmatic dependent launch)."""

    def __init__(self, config: Config, vocabulary: VocabularyShard, pool: Tensor) -> None:
        self._config = config
        self._vocabulary = vocabulary
        self._device = pool.device
        self.before_launch: Callable[[], object] = do_nothing
        max_blocks = -(-config.max_model_len // config.kvcache_block_size)
        self._rows = DecodeRows(config.max_num_seqs, max_blocks, config.seed, pool.device)
        self._shares_prefixes = False
        self._last: SampledTokens | None = None
        self._decode: DecodeBody = self._decode_rows
        self.graph_sizes = GraphSizes()

    def record_graphs(self) -> None:
        """See ``Steps``."""
        if not self._config.enforce_eager:
            graphs = self._new_graphs()
            graphs.record()
            self._vocabulary.group.before_abort(graphs.release)
            self._decode = graphs
            self.graph_sizes = GraphSizes(decode=tuple(graphs.sizes))

    def measure_graph_bytes(self) -> int:
        """See ``Steps``."""
        return 0 if self._config.enforce_eager else self._new_graphs().measure_bytes(self._device)

    def _new_graphs(self) -> DecodeGraphs:
        return DecodeGraphs(self._decode_rows, self._rows.max_rows, with_prefixes=self._has_prefix_kernels)

    # ---- how logits are computed -----------------------------------------------------------------------------

    @abstractmethod
    def _compute_rows(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        """The hidden states ``[num_rows, hidden_size]`` of the first rows, of which some may be empty; nothing but
        kernel launches, for a graph must be able to record it."""

    @abstractmethod
    def _compute_prompts(self, inputs: StepInputs) -> Tensor:
        """The hidden state ``[num_seqs, hidden_size]`` of each sequence's last token."""

    @abstractmethod
    def _compute_logits(self, hidden: Tensor) -> Tensor:
        """See ``Decoder.compute_logits``; ``hidden`` is as ``_compute_rows`` and ``_compute_prompts`` return it."""

    def _find_prefixes(self, num_rows: int) -> bool:
        """The batch in the first rows is new: whether it pays to compute it by the kernels for shared prefixes."""
        return False

    # ---- the step --------------------------------------------------------------------------------------------

    def compute(self, sequences: list[Sequence]) -> Tensor:
        """See ``Steps``."""
        try:
            with torch.inference_mode():
                if all(seq.num_cached_tokens == seq.num_tokens - 1 for seq in sequences):
                    tokens = self._compute_decodes(sequences)
                else:
                    self._rows.pass_over()
                    tokens = self._compute_chunks(sequences)
        except BaseException:
            self._rows.forget()  # they may have been sent in part, or moved on without the host's knowledge
            self._last = None
            raise
        self._last = SampledTokens(tokens, sequences)
        return tokens

    def _compute_decodes(self, sequences: list[Sequence]) -> Tensor:
        num_rows = len(sequences)
        if self._rows.update(sequences, self._last):
            self._shares_prefixes = self._find_prefixes(num_rows)
        self.before_launch()
        hidden = self._decode(num_rows, self._shares_prefixes)
        if any(_is_filtered(seq) for seq in sequences):
            logits = self._compute_logits(hidden)
            self._rows.token_ids[:num_rows] = sample(logits, self._sampling_inputs(sequences), self._vocabulary).int()
        return self._rows.token_ids[:num_rows]

    def _decode_rows(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        """A decode step of the first rows: draws their next tokens, moves them on. Returns the hidden states: of the
        logits, which are larger by far, no graph should keep its own."""
        rows = self._rows
        context_lens, token_ids = rows.context_lens[:num_rows], rows.token_ids[:num_rows]
        hidden = self._compute_rows(num_rows, shares_prefixes)
        logits = self._compute_logits(hidden)
        temperatures, keys = rows.temperatures[:num_rows], rows.seed_keys[:, :num_rows]
        draw(
            logits,
            temperatures,
            keys,
            context_lens,
            token_ids,
            vocabulary=self._vocabulary,
            advance=True,
            pdl=self._pdl,
        )
        return hidden

    def _compute_chunks(self, sequences: list[Sequence]) -> Tensor:
        inputs = build_step_inputs(sequences, self._config.kvcache_block_size, self._device)
        self._fill_in_unknown(inputs, sequences)
        # Before the launches: what is sent waits for nothing that is queued.
        if any(_is_filtered(seq) for seq in sequences):
            sampling_inputs = self._sampling_inputs(sequences)
            self.before_launch()
            logits = self._compute_logits(self._compute_prompts(inputs))
            return sample(logits, sampling_inputs, self._vocabulary).int()
        draws = self._draws(sequences)
        self.before_launch()
        logits = self._compute_logits(self._compute_prompts(inputs))
        token_ids = torch.empty(len(sequences), dtype=torch.int32, device=self._device)
        temperatures, keys, places = draws[0].view(torch.float32), draws[1:3], draws[3]
        # What it reads before its wait was sent ahead of all of torch's own kernels in between, which wait themselves.
        return draw(logits, temperatures, keys, places, token_ids, vocabulary=self._vocabulary, pdl=self._pdl)

    def _draws(self, sequences: list[Sequence]) -> Tensor:
        """``[4, num_seqs]`` int32: temperature (the bits of a float32), the two keys of the seed, and the place that
        the drawn token will have."""
        temperatures = np.array([seq.sampling_params.temperature for seq in sequences], dtype=np.float32)
        places = np.array([seq.num_tokens for seq in sequences], dtype=np.int32)
        rows = [temperatures.view(np.int32), *seed_keys(sequences, self._config.seed).T, places]
        return to_device(np.stack(rows), self._device)

    def _fill_in_unknown(self, inputs: StepInputs, sequences: list[Sequence]) -> None:
        """Fill in the newest tokens that the step before sampled and that the host may not know yet."""
        ends = [seq.num_cached_tokens + seq.num_scheduled_tokens for seq in sequences]
        unknown = [
            place
            for place, (seq, end) in enumerate(zip(sequences, ends, strict=True))
            if end == seq.num_tokens and seq.last_token == UNKNOWN_TOKEN
        ]
        if unknown:
            assert self._last is not None, "no step has sampled the tokens that are unknown"
            places = {seq: place for place, seq in enumerate(self._last.sequences)}
            sources = np.array([[places[sequences[place]] for place in unknown], unknown])
            source, target = to_device(sources, self._device)
            inputs.token_ids[inputs.last_rows[target]] = self._last.tokens[source].long()

    def _sampling_inputs(self, sequences: list[Sequence]) -> SamplingInputs:
        return build_sampling_inputs(sequences, self._config.seed, self._vocabulary.size, self._device)


def _is_filtered(seq: Sequence) -> bool:
    params = seq.sampling_params
    return params.temperature > 0 and (params.top_k > 0 or params.top_p < 1 or params.min_p > 0)
