"""Steps of chunks in graphs: padded to the sizes that were recorded, and nothing is seen of it.

Without a card nothing is recorded: the body that a graph would repeat runs itself, in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from torch import Tensor

from nanovllm.runner.model_runner import ModelRunner
from tests.kernels import INTERPRETED
from tests.runner.row_runs import CONFIG, SPEC, run

from nanovllm.runner import chunk_graphs  # isort: skip  (after the check that Triton is there)
from nanovllm.runner.chunk_graphs import chunk_graph_sizes
from nanovllm.runner.fused_steps import FusedSteps


class Unrecorded:
    """``Graphs`` whose bodies run when they are asked for."""

    used: list[Any] = []  # noqa: RUF012

    def __init__(self, body: Callable[[Any], Tensor], kinds: list[Any]) -> None:
        self._body = body

    def replay(self, kind: Any) -> Tensor:
        self.used.append(kind)
        return self._body(kind)


class ChunksInGraphs(FusedSteps):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._chunk_graphs = self._new_chunk_graphs()


@pytest.mark.filterwarnings("ignore:overflow encountered")  # what fills up a step is computed from anything
@pytest.mark.skipif(not INTERPRETED, reason="on a card, test_fused_steps records graphs")
def test_padded_steps_give_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_graphs, "Graphs", Unrecorded)
    monkeypatch.setattr(chunk_graphs, "_FEW_SEQS", 2)
    monkeypatch.setattr(Unrecorded, "used", [])
    runner = ModelRunner(CONFIG, spec=SPEC)
    expected = run(runner, replace(CONFIG, lookahead=False), None)
    assert run(runner, replace(CONFIG, num_kvcache_blocks=7), ChunksInGraphs) == expected
    assert len(set(Unrecorded.used)) > 1, "several kinds of graphs are replayed"


@pytest.mark.parametrize("max_tokens", [16, 32, 100, 2048, 8192])
def test_sizes_waste_half_a_step_at_most(max_tokens: int) -> None:
    sizes = chunk_graph_sizes(max_tokens)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == max_tokens
    assert all(after <= before * 1.5 for before, after in pairwise(sizes))
