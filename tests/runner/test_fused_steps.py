"""The fused path against the plain one: the same tokens, whatever is chunked, shared, preempted or looked ahead of.

Without a card the kernels run in Triton's interpreter, and steps are not recorded as graphs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.decode_graphs import graph_sizes
from nanovllm.sampling_params import SamplingParams
from tests.kernels import DEVICE, INTERPRETED, torch

from nanovllm.runner.fused_steps import FusedSteps  # isort: skip  (after the check that Triton is there)
from nanovllm.runner.kv_cache import allocate_pool
from nanovllm.runner.model_runner import ModelRunner

SPEC = replace(
    ModelSpec.preset("qwen3-0.6b"),
    num_layers=2,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=96,
    vocab_size=307,
    max_position_embeddings=512,
    dtype="float32",
)
CONFIG = Config(
    device=DEVICE.type,
    dtype="float32",
    kvcache_block_size=16,
    num_kvcache_blocks=40,
    max_num_batched_tokens=40,
    max_model_len=128,
    max_num_seqs=5,
    enforce_eager=True,
    attention="torch",
)


def requests() -> list[Request]:
    """Prompts of which two share blocks; greedy, drawn and filtered ones; of different lengths."""
    prefix = list(range(1, 36))
    prompts = [[*prefix, 3], [7, 8, 9], [*prefix, 4, 5], [*range(50, 70)]]
    draws = [{"temperature": 0.0}, {"temperature": 0.8}, {"temperature": 0.9, "top_k": 20}, {"temperature": 0.0}]
    return [
        Request(
            request_id=index,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=4 + index, ignore_eos=True, **draw),
        )
        for index, (prompt, draw) in enumerate(zip(prompts, draws, strict=True))
    ]


class Arrived:
    """A step that is over when it has been submitted."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens.tolist()

    def result(self) -> list[int]:
        return self.tokens


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(CONFIG, spec=SPEC)


def run(runner: ModelRunner, config: Config, *, fused: bool) -> list[list[int]]:
    config = replace(config, enforce_eager=INTERPRETED or config.enforce_eager)
    pool = allocate_pool(SPEC, config.num_kvcache_blocks, 16, runner.dtype, runner.device)
    runner.num_kv_blocks = config.num_kvcache_blocks
    runner._steps = (
        FusedSteps(config, SPEC, runner._model, pool) if fused else runner._new_steps(len(pool[0, 0]), config)
    )
    if fused and config.lookahead:
        runner.submit = lambda batch: Arrived(runner._compute(batch))
    try:
        engine = Engine(config, runner)
        sequences = [engine.add(request) for request in requests()]
        for result in engine.run():
            assert result.error is None
    finally:
        vars(runner).pop("submit", None)
    return [seq.completion_token_ids for seq in sequences]


@pytest.mark.parametrize(
    "config",
    [replace(CONFIG, lookahead=False), replace(CONFIG, num_kvcache_blocks=7)],
    ids=["roomy", "tight, looking ahead"],
)
def test_tokens_are_those_of_the_plain_steps(runner: ModelRunner, config: Config) -> None:
    expected = run(runner, replace(CONFIG, lookahead=False), fused=False)
    assert run(runner, config, fused=True) == expected
    if not INTERPRETED:
        assert run(runner, replace(config, enforce_eager=False), fused=True) == expected


@pytest.mark.parametrize("max_rows", [1, 7, 12, 100, 256, 300, 512])
def test_graph_sizes_leave_no_gap(max_rows: int) -> None:
    sizes = graph_sizes(max_rows)
    assert sizes[-1] == max_rows
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert all(after - before <= max(1, before) for before, after in pairwise(sizes))
