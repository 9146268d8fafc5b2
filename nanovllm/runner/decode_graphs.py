"""Decode steps as CUDA graphs: launched by one call, whatever the number of kernels in them.

A graph is recorded for every multiple of a few rows up to the most that may run, and replayed for any batch that fits:
the rows beyond the batch are empty. All it reads lies in ``DecodeRows``, so contexts of any length will do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

from nanovllm.runner.graphs import Graphs

DecodeBody = Callable[[int, bool], Tensor]
"""Computes a step of so many rows, with or without shared prefixes, and returns the hidden states ``[num_rows,
hidden_size]``."""


def graph_sizes(max_rows: int) -> list[int]:
    """Numbers of rows that graphs are recorded for: exact up to 8, then in steps of an eighth or so, ``max_rows`` last.

    Without gaps: 9 to 12 of 12 rows, or 97 to 100 of 100, have a graph like all others.
    """
    sizes, size = [], 1
    while size < max_rows:
        sizes.append(size)
        size += 1 if size < 8 else 8 if size < 64 else 16 if size < 256 else 32
    return [*sizes, max_rows]


class DecodeGraphs:
    """Runs ``body`` by graphs, recorded by ``record`` while all rows are empty: recording computes the step, too.
    ``with_prefixes``: the body can also be asked for a step with shared prefixes."""

    def __init__(self, body: DecodeBody, max_rows: int, *, with_prefixes: bool) -> None:
        self.sizes = graph_sizes(max_rows)
        kinds = [
            (size, shares_prefixes)
            for size in reversed(self.sizes)
            for shares_prefixes in ((True, False) if with_prefixes and size > 1 else (False,))
        ]
        self._graphs = Graphs(lambda kind: body(*kind), kinds)

    def record(self) -> None:
        """Record all graphs."""
        self._graphs.record()

    def release(self) -> None:
        """Give them back: no step can be computed any more."""
        self._graphs.release()

    def measure_bytes(self, device: torch.device) -> int:
        """What ``record`` will take of the card."""
        return self._graphs.measure_bytes(device)

    def __call__(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        """Compute a step of the first ``num_rows`` rows. Returns their hidden states, to be read before the next."""
        size = self.sizes[bisect_left(self.sizes, num_rows)]
        return self._graphs.replay((size, shares_prefixes and size > 1))[:num_rows]
