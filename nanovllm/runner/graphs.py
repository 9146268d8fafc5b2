"""CUDA graphs: many launches recorded once and repeated by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from nanovllm.runner.memory import memory_bytes

Kind = TypeVar("Kind")


class GraphSizes(NamedTuple):
    """Numbers of tokens that graphs are recorded for: a step is computed by the next larger one; one that is larger
    than all, launch by launch."""

    decode: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    """Of steps with chunks of prompts."""


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    result: Tensor


class Graphs(Generic[Kind]):
    """A graph of ``body`` for each of some kinds of steps; the largest should come first.

    ``body`` may launch kernels and nothing else, on memory that stays in place. Recording runs it, too.
    """

    def __init__(self, body: Callable[[Kind], Tensor], kinds: Sequence[Kind]) -> None:
        self._body = body
        self._kinds = kinds
        self._graphs: dict[Kind, _Graph] = {}
        self._warm_up = torch.cuda.Stream()  # one for all: cuBLAS keeps a workspace for every stream that it has seen

    def record(self) -> None:
        """Record all graphs, each in memory that those before it used if it fits."""
        memory = None
        for kind in self._kinds:
            self._graphs[kind] = recorded = self._record(kind, memory)
            memory = recorded.graph.pool()

    def measure_bytes(self, device: torch.device) -> int:
        """What ``record`` will take of the card: the first graph, and as often as there are others what the second
        takes, which finds memory for reuse but keeps its own launches."""
        recorded: list[_Graph] = []
        free_bytes = [memory_bytes(device)]
        for kind in self._kinds[:2]:
            recorded.append(self._record(kind, recorded[0].graph.pool() if recorded else None))
            free_bytes.append(memory_bytes(device))
        taken_bytes = [max(before - after, 0) for before, after in pairwise(free_bytes)]
        return sum(taken_bytes[:1]) + sum(taken_bytes[1:]) * (len(self._kinds) - 1)

    def release(self) -> None:
        """Give the graphs back, whoever still knows them. One that is being computed goes when it is over."""
        with suppress(KeyError):  # none is left; another thread may have taken the last
            while True:
                self._graphs.popitem()[1].graph.reset()

    def _record(self, kind: Kind, memory: tuple[int, int] | None) -> _Graph:
        stream, warm_up = torch.cuda.current_stream(), self._warm_up
        warm_up.wait_stream(stream)
        with torch.cuda.stream(warm_up):
            self._body(kind)  # compiles, and lets libraries take their memory outside of the graph
        stream.wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory):
            result = self._body(kind)
        return _Graph(graph, result)

    def replay(self, kind: Kind) -> Tensor:
        """Compute a step of this kind. Returns what the body did, to be read before the next step of any kind."""
        recorded = self._graphs[kind]
        recorded.graph.replay()
        return recorded.result
