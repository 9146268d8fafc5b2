"""Decode steps as CUDA graphs: launched by one call, whatever the number of kernels in them.

A graph is recorded for every multiple of a few rows up to the most that may run, and replayed for any batch that fits:
the rows beyond the batch are empty. All it reads lies in ``DecodeRows``, so contexts of any length will do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from nanovllm.runner.memory import memory_bytes

DecodeBody = Callable[[int, bool], Tensor]
"""Computes a step of so many rows, with or without shared prefixes, and returns the hidden states ``[num_rows,
hidden_size]``."""


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    hidden: Tensor


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
        self._body = body
        self._with_prefixes = with_prefixes
        self._sizes = graph_sizes(max_rows)
        self._graphs: dict[tuple[int, bool], _Graph] = {}
        self._warm_up = torch.cuda.Stream()  # one for all: cuBLAS keeps a workspace for every stream that it has seen

    def record(self) -> None:
        """Record all graphs, the largest first: the others then find memory for reuse."""
        memory = None
        for size, shares_prefixes in self._kinds():
            self._graphs[size, shares_prefixes] = recorded = self._record(size, shares_prefixes, memory)
            memory = recorded.graph.pool()

    def measure_bytes(self, device: torch.device) -> int:
        """What ``record`` will take of the card: the first graph, and as often as there are others what the second
        takes, which finds memory for reuse but keeps its own launches."""
        kinds = self._kinds()
        recorded: list[_Graph] = []
        free_bytes = [memory_bytes(device)]
        for size, shares_prefixes in kinds[:2]:
            recorded.append(self._record(size, shares_prefixes, recorded[0].graph.pool() if recorded else None))
            free_bytes.append(memory_bytes(device))
        taken_bytes = [max(before - after, 0) for before, after in pairwise(free_bytes)]
        return taken_bytes[0] + sum(taken_bytes[1:]) * (len(kinds) - 1)

    def _kinds(self) -> list[tuple[int, bool]]:
        """Sizes, with and without shared prefixes, as they are recorded."""
        return [
            (size, shares_prefixes)
            for size in reversed(self._sizes)
            for shares_prefixes in ((True, False) if self._with_prefixes and size > 1 else (False,))
        ]

    def _record(self, size: int, shares_prefixes: bool, memory: tuple[int, int] | None) -> _Graph:
        stream, warm_up = torch.cuda.current_stream(), self._warm_up
        warm_up.wait_stream(stream)
        with torch.cuda.stream(warm_up):
            self._body(size, shares_prefixes)  # compiles, and lets libraries take their memory outside of the graph
        stream.wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory):
            hidden = self._body(size, shares_prefixes)
        return _Graph(graph, hidden)

    def __call__(self, num_rows: int, shares_prefixes: bool) -> Tensor:
        """Compute a step of the first ``num_rows`` rows. Returns their hidden states, to be read before the next."""
        size = self._sizes[bisect_left(self._sizes, num_rows)]
        recorded = self._graphs[size, shares_prefixes and size > 1]
        recorded.graph.replay()
        return recorded.hidden[:num_rows]
