"""The fused kernels on several ranks: the tokens of one rank in plain torch, looking ahead too.

Without a card they run in Triton's interpreter, and steps are not recorded as graphs; what a card does is tested in
``tests.gpu``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from tests.kernels import INTERPRETED, torch
from tests.runner.row_runs import CONFIG, SPEC, requests

from nanovllm.layers.group import VocabularyShard  # isort: skip  (after the check that Triton is there)
from nanovllm.layers.triton.launch_parameters import DrawParameters
from nanovllm.layers.triton.sampling import draw
from nanovllm.runner import model_runner, rank
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.pending import CpuStep
from nanovllm.runner.tensor_parallel import worker_process
from tests.runner.tensor_parallel.fused_worker import new_fused_steps

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="tests.gpu runs the kernels on cards")


class CopiedStep(CpuStep):
    """Takes the tokens along at once, as a card does: the next step overwrites them."""

    def send(self, tokens: torch.Tensor) -> None:
        super().send(tokens.clone())


def answers(config: Config) -> list[list[int]]:
    runner = ModelRunner(config, spec=SPEC)
    try:
        engine = Engine(config, runner)
        sequences = [engine.add(request) for request in requests()]
        for result in engine.run():
            assert result.error is None
    finally:
        runner.close()
    return [seq.completion_token_ids for seq in sequences]


def test_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, num_kvcache_blocks=7, num_threads=1)
    expected = answers(replace(config, lookahead=False))
    monkeypatch.setattr(rank, "new_steps", new_fused_steps)
    monkeypatch.setattr(model_runner, "CpuStep", CopiedStep)
    monkeypatch.setattr(worker_process, "WORKER_MODULE", "tests.runner.tensor_parallel.fused_worker")
    assert answers(replace(config, tensor_parallel_size=2)) == expected


# ---- draws -----------------------------------------------------------------------------------------------------


class Rehearsed:
    """A rank whose others have shown their part already: what all of them show is collected in a first round."""

    def __init__(self, rank: int, size: int, shown: list[torch.Tensor]) -> None:
        self.rank, self.size = rank, size
        self._shown = shown

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        if len(self._shown) < self.size:
            self._shown.append(x)
            return torch.stack([x] * self.size)
        return torch.stack(self._shown)


@pytest.mark.parametrize(("vocab_size", "size"), [(100, 2), (131, 3), (129, 4), (7, 7)])
def test_shards_draw_what_the_whole_does(vocab_size: int, size: int) -> None:
    rng = torch.Generator().manual_seed(vocab_size)
    num_rows = 12
    logits = 3 * torch.randn(num_rows, vocab_size, generator=rng)
    logits[3, 5:] = logits[3, 0] = float("-inf")
    logits[4, :] = 1.0
    temperatures = torch.tensor([0.0, 0.7, 1.0, 1.3] * 3)
    temperatures[4] = 0.0
    keys = torch.randint(-(2**31), 2**31, (2, num_rows), generator=rng).int()
    places = torch.arange(num_rows).int()
    parameters = DrawParameters(tile=32, num_warps=4)
    expected = draw(logits, temperatures, keys, places, torch.empty(num_rows).int(), parameters=parameters)
    shown: list[torch.Tensor] = []
    for round_ in (1, 2):
        for rank_ in range(size):
            vocabulary = VocabularyShard(vocab_size, Rehearsed(rank_, size, shown))
            own = logits[:, vocabulary.token_ids.start : vocabulary.token_ids.stop]
            drawn = torch.empty(num_rows).int()
            draw(own, temperatures, keys, places, drawn, vocabulary=vocabulary, parameters=parameters)
            assert round_ == 1 or torch.equal(drawn, expected)
