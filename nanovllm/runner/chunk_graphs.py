"""Small steps with chunks of prompts as CUDA graphs.

A prompt of a hundred tokens takes the card a millisecond, and the host ten or more to launch kernel by kernel. So steps
of up to a few thousand tokens are recorded for some numbers of tokens, and replayed for any step that fits: the rest of
a graph computes tokens that nobody asked for and that are stored nowhere. Larger steps keep the card busy for longer
than their launches take.
"""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor

from nanovllm.attention.to_device import to_device
from nanovllm.attention.triton.launch_parameters import PrefillParameters, prefill_parameters
from nanovllm.attention.triton.prefill_launch import PrefillStep, list_tiles, tile_tokens
from nanovllm.models.fused_decoder import FusedDecoder
from nanovllm.runner.graphs import Graphs
from nanovllm.runner.inputs import StepInputs

_HOST_BOUND_FLOPS = 8e12
"""Operations of a step whose launches take as long as its kernels: 12 ms, measured with 28 layers on an NVIDIA H200."""
_MAX_TOKENS = 8192
_FEW_SEQS = 16
"""With so many sequences at most, there is a graph with fewer tiles that may stay empty."""


def chunk_graph_sizes(max_tokens: int) -> list[int]:
    """Numbers of tokens that graphs are recorded for: 32, 48, 64, 96 ..., ``max_tokens`` last."""
    sizes, size = [], 32
    while size < max_tokens:
        sizes += [size, size * 3 // 2]
        size *= 2
    return [*(size for size in sizes if size < max_tokens), max_tokens]


class ChunkGraphs:
    """Runs ``FusedDecoder.prefill`` by graphs, over memory of its own for the inputs of a step."""

    def __init__(
        self,
        decoder: FusedDecoder,
        *,
        max_step_tokens: int,
        max_seqs: int,
        max_blocks: int,
        flops_per_token: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """``max_step_tokens``, ``max_seqs``: of a step; ``max_blocks``: of a sequence; ``flops_per_token``: operations
        of the matrix products; ``dtype``: of the pool."""
        self._decoder = decoder
        self._dtype = dtype
        self._device = device
        most = max(min(max_step_tokens, _MAX_TOKENS, int(_HOST_BOUND_FLOPS / flops_per_token)), 1)
        self.sizes = chunk_graph_sizes(most)
        largest = self.sizes[-1]
        self._seq_limits = [_FEW_SEQS, max_seqs] if max_seqs > _FEW_SEQS else [max_seqs]
        self._token_ids, self._positions = (torch.zeros(largest, dtype=torch.int64, device=device) for _ in range(2))
        self._slots = torch.full((largest,), -1, dtype=torch.int64, device=device)
        self._tables = torch.zeros(max_seqs, max_blocks, dtype=torch.int32, device=device)
        most_tiles = max(self._num_tiles(kind) for kind in self._kinds())
        self._tiles = torch.zeros(most_tiles, 4, dtype=torch.int32, device=device)
        self._graphs = Graphs(self._body, self._kinds())

    def record(self) -> None:
        """Record all graphs."""
        self._graphs.record()

    def release(self) -> None:
        """Give them back: no step can be computed any more."""
        self._graphs.release()

    def measure_bytes(self) -> int:
        """What ``record`` will take of the card."""
        return self._graphs.measure_bytes(self._device)

    def compute(self, inputs: StepInputs) -> Tensor | None:
        """The hidden states of all tokens of a step, to be read before the next; None if no graph is large enough."""
        num_tokens, num_seqs = len(inputs.token_ids), len(inputs.attention.query_lens)
        place = bisect_left(self.sizes, num_tokens)
        if place == len(self.sizes):
            return None
        kind = size, _ = self.sizes[place], self._seq_limits[bisect_left(self._seq_limits, num_seqs)]
        tables, lens = inputs.attention.block_tables, inputs.attention
        tiles = list_tiles(lens.query_lens, lens.context_lens, self._tokens_per_tile(size))
        self._token_ids[:num_tokens].copy_(inputs.token_ids)
        self._positions[:num_tokens].copy_(inputs.positions)
        self._slots[:num_tokens].copy_(lens.slot_mapping)
        self._slots[num_tokens:size].fill_(-1)
        self._tables[:num_seqs, : tables.shape[1]].copy_(tables)
        self._tiles[: len(tiles)].copy_(to_device(tiles, self._device))
        self._tiles[len(tiles) :].zero_()
        return self._graphs.replay(kind)[:num_tokens]

    def _kinds(self) -> list[tuple[int, int]]:
        """Tokens and sequences at most, the largest first."""
        return [(size, num_seqs) for size in reversed(self.sizes) for num_seqs in reversed(self._seq_limits)]

    def _body(self, kind: tuple[int, int]) -> Tensor:
        size, _ = kind
        step = PrefillStep(self._tiles[: self._num_tiles(kind)], self._tables, self._parameters(size))
        return self._decoder.prefill(self._token_ids[:size], self._positions[:size], self._slots[:size], step)

    def _parameters(self, size: int) -> PrefillParameters:
        return prefill_parameters(size, self._decoder.shape, self._dtype.itemsize, self._device)

    def _tokens_per_tile(self, size: int) -> int:
        return tile_tokens(self._parameters(size), self._decoder.shape)

    def _num_tiles(self, kind: tuple[int, int]) -> int:
        """As many as a step of this kind can have: each sequence may leave a part of its last one empty."""
        size, num_seqs = kind
        return size // self._tokens_per_tile(size) + min(num_seqs, size)
