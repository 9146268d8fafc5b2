"""Runs by flash-attn on a card answer as those by the reference do, but where two tokens are almost equally likely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("flash_attn", reason="needs flash-attn", exc_type=ImportError)

import torch

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.kv_cache import allocate_pool
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.steps import new_steps
from nanovllm.sampling_params import SamplingParams

pytestmark = pytest.mark.gpu

SPEC = replace(ModelSpec.preset("qwen3-0.6b"), num_layers=4)
CONFIG = Config(
    device="cuda", dtype="bfloat16", max_model_len=1024, max_num_seqs=12, num_kvcache_blocks=40, attention="torch"
)
PROMPTS = [
    [(31 * i * i + 7 * index) % 10_000 for i in range(length)]
    for index, length in enumerate((1, 2, 255, 256, 257, 700, 40, 511, 512, 33, 64, 300))
]
NUM_TOKENS = 40
NEAR_TIE = 0.1
"""Two logits that are nearer than this share of all logits' standard deviation may change places by rounding."""


@pytest.fixture(scope="module")
def runner() -> Iterator[ModelRunner]:
    runner = ModelRunner(CONFIG, spec=SPEC)
    yield runner
    runner.close()


def install(runner: ModelRunner, config: Config) -> None:
    """Let the runner compute over a new pool by the attention of ``config``."""
    runner._steps = None
    pool = allocate_pool(SPEC, config.num_kvcache_blocks, config.kvcache_block_size, runner.dtype, runner.device)
    assert runner._model is not None
    runner.num_kv_blocks = config.num_kvcache_blocks
    runner._steps = new_steps(config.attention, config, SPEC, runner._model, pool)
    runner._steps.record_graphs()
    vars(runner).pop("submit", None)
    if runner._steps.takes_unknown_tokens:
        runner.submit = runner._submit


def generate(runner: ModelRunner, config: Config, **params: Any) -> list[list[int]]:
    install(runner, config)
    engine = Engine(config, runner)
    sampling = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **{"temperature": 0.0, **params})
    sequences = [
        engine.add(Request(request_id=index, prompt_token_ids=prompt, sampling_params=sampling))
        for index, prompt in enumerate(PROMPTS)
    ]
    for result in engine.run():
        assert result.error is None
    return [seq.completion_token_ids for seq in sequences]


@pytest.fixture(scope="module")
def expected(runner: ModelRunner) -> list[list[int]]:
    return generate(runner, CONFIG)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enforce_eager": True},
        {"lookahead": False},
        {"max_num_batched_tokens": 100},
        {"num_kvcache_blocks": 8, "max_num_batched_tokens": 300},
        {"max_num_seqs": 1},
    ],
    ids=lambda options: ", ".join(options) or "graphs",
)
def test_greedy_tokens_are_those_of_the_reference(
    runner: ModelRunner, expected: list[list[int]], options: dict[str, Any]
) -> None:
    answers = generate(runner, replace(CONFIG, attention="flash", **options))
    install(runner, CONFIG)
    for prompt, answer, other in zip(PROMPTS, answers, expected, strict=True):
        assert len(answer) == NUM_TOKENS
        assert_same_up_to_a_near_tie(runner, prompt, answer, other)


def assert_same_up_to_a_near_tie(runner: ModelRunner, prompt: list[int], answer: list[int], other: list[int]) -> None:
    """What follows a near tie may be anything."""
    place = next((i for i, (a, b) in enumerate(zip(answer, other, strict=True)) if a != b), None)
    if place is None:
        return
    logits = reference_logits(runner, [*prompt, *answer[:place]])
    gap = (logits[answer[place]] - logits[other[place]]).abs().item()
    assert gap < NEAR_TIE * logits.std().item(), f"token {place} differs, and not by a near tie"


def reference_logits(runner: ModelRunner, token_ids: list[int]) -> torch.Tensor:
    """``[vocab_size]`` float32: of the token after these, by the reference attention."""
    seen: list[torch.Tensor] = []
    steps, model = runner._steps, runner._model
    assert steps is not None
    assert model is not None
    compute_logits = model.compute_logits
    model.compute_logits = lambda hidden: seen.append(compute_logits(hidden)) or seen[-1]
    try:
        seq = Sequence(token_ids, SamplingParams(temperature=0.0), request_id=0)
        seq.block_table = list(range(-(-len(token_ids) // CONFIG.kvcache_block_size)))
        seq.num_scheduled_tokens = len(token_ids)
        steps.compute([seq])
    finally:
        del model.compute_logits
    return seen[0][0].float()


def test_draws_do_not_depend_on_graphs_or_company(runner: ModelRunner) -> None:
    """Up to the first near tie of logit and noise, so nearly all draws."""
    config = replace(CONFIG, attention="flash")
    graphs = generate(runner, config, temperature=0.8)
    eager = generate(runner, replace(config, enforce_eager=True, max_num_seqs=3), temperature=0.8)
    first_tokens = [(a[0], b[0]) for a, b in zip(graphs, eager, strict=True)]
    assert sum(a == b for a, b in first_tokens) >= len(PROMPTS) - 1


def test_the_runner_says_what_it_took() -> None:
    runner = ModelRunner(replace(CONFIG, attention="flash", max_num_seqs=2), spec=replace(SPEC, num_layers=1))
    assert (runner.name, runner.attention_reason) == ("cuda, flash attention", "it was asked for")
    runner.close()
