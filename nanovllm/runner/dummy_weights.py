"""Random weights for a shape: benchmarks and tests without a download."""

from __future__ import annotations

import torch
import xxhash
from torch import Tensor

from nanovllm.models.decoder import Decoder
from nanovllm.runner.weights import find_places

_SPREAD = 0.02
"""What such models are initialised with."""
_BLOCK_ROWS = 4096


def fill_with_random_weights(model: Decoder, seed: int) -> None:
    """Give matrices the spread 0.02, vectors the value 1 (norms) or 0 (biases).

    The same seed on the same kind of device gives the same whole model, among however many ranks it is shared out:
    each draws every tensor, and keeps its part.
    """
    parameter = next(model.parameters())
    for name, place in find_places(model).items():
        shape = place.whole_shape
        if len(shape) == 1:
            place.fill(torch.full(shape, 0.0 if name.endswith("bias") else 1.0))
        else:
            place.fill(_RandomMatrix(f"{seed}/{name}", shape, parameter))


class _RandomMatrix:
    """A matrix that is drawn as it is read, block of rows by block: the whole of it need not fit beside the model."""

    def __init__(self, name: str, shape: list[int], like: Tensor) -> None:
        self._name = name
        self._num_rows, self._num_columns = shape
        self._like = like

    def __getitem__(self, place: slice | tuple[slice, slice]) -> Tensor:
        rows, columns = place if isinstance(place, tuple) else (place, slice(None))
        start, stop, _ = rows.indices(self._num_rows)
        first = start // _BLOCK_ROWS * _BLOCK_ROWS
        parts = []
        for block_start in range(first, stop, _BLOCK_ROWS):
            block = self._draw(block_start)
            own = slice(max(start - block_start, 0), stop - block_start)
            parts.append(block[own, columns].contiguous())
        return torch.cat(parts)

    def _draw(self, first_row: int) -> Tensor:
        """The block of rows from there on."""
        seed = xxhash.xxh64_intdigest(f"{self._name}/{first_row}".encode()) >> 1  # torch takes 63 bits
        generator = torch.Generator(self._like.device).manual_seed(seed)
        num_rows = min(_BLOCK_ROWS, self._num_rows - first_row)
        block = self._like.new_empty(num_rows, self._num_columns)
        return block.normal_(0.0, _SPREAD, generator=generator)
