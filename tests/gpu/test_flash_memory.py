"""A card on which memory runs out: before the engine runs, and in the middle of it, whatever computes the attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.errors import StepError
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from tests.gpu.memory import all_taken_but

pytestmark = pytest.mark.gpu

SPEC = replace(ModelSpec.preset("qwen3-0.6b"), num_layers=2)
NUM_SHORT = 4
SPARE_BYTES = 2**27
"""Enough for decode steps, too little for a prefill of 16,000 tokens."""


def config_for(attention: str) -> Config:
    if attention == "flash":
        pytest.importorskip("flash_attn", reason="needs flash-attn", exc_type=ImportError)
    return Config(device="cuda", attention=attention, num_kvcache_blocks=90, max_num_seqs=20)


@pytest.fixture(params=["torch", "triton", "flash"])
def config(request: pytest.FixtureRequest) -> Iterator[Config]:
    yield config_for(request.param)
    torch.cuda.empty_cache()


def short_requests() -> list[Request]:
    params = SamplingParams(temperature=0.7, max_tokens=40, ignore_eos=True)
    return [
        Request(request_id=index, prompt_token_ids=[*range(index, 300 + index)], sampling_params=params)
        for index in range(NUM_SHORT)
    ]


def long_requests(arrival_step: int) -> list[Request]:
    params = SamplingParams(temperature=0.7, max_tokens=3, ignore_eos=True)
    return [
        Request(
            request_id=f"long {index}",
            prompt_token_ids=[(i + 7 * index) % 1000 for i in range(4000)],
            sampling_params=params,
            arrival_step=arrival_step,
        )
        for index in range(4)
    ]


def answers(engine: Engine, requests: list[Request]) -> tuple[dict[object, list[int]], list[StepError]]:
    tokens, errors = {}, []
    for result in engine.run(requests):
        tokens |= {seq.request_id: seq.completion_token_ids for seq in result.finished if not result.error}
        errors += [result.error] if result.error else []
    return tokens, errors


@pytest.mark.parametrize("lookahead", [True, False])
@pytest.mark.parametrize("enforce_eager", [False, True])
def test_a_step_without_memory_fails_alone(config: Config, lookahead: bool, enforce_eager: bool) -> None:
    config = replace(config, lookahead=lookahead, enforce_eager=enforce_eager, enable_prefix_caching=False)
    runner = ModelRunner(config, spec=SPEC)
    try:
        expected, _ = answers(Engine(config, runner), short_requests())
        engine = Engine(config, runner)
        with all_taken_but(SPARE_BYTES):
            tokens, errors = answers(engine, [*short_requests(), *long_requests(arrival_step=10)])
        assert ["ran out of memory on cuda" in str(error) for error in errors] == [True]
        assert tokens == expected
        assert engine.scheduler.block_manager.num_free_blocks == config.num_kvcache_blocks
        tokens, errors = answers(Engine(config, runner), [*short_requests(), *long_requests(arrival_step=10)])
        assert not errors
        assert len(tokens) == NUM_SHORT + 4
    finally:
        runner.close()


@pytest.mark.parametrize("attention", ["triton", "flash"])
def test_the_whole_card_may_be_taken(attention: str) -> None:
    """Graphs and the largest step have been counted, so they find their place beside the pool; so does what others
    hold."""
    others = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    config = replace(config_for(attention), num_kvcache_blocks=-1, gpu_memory_utilization=1.0, max_num_seqs=256)
    runner = ModelRunner(config, spec=SPEC)
    try:
        tokens, errors = answers(Engine(config, runner), [*short_requests(), *long_requests(arrival_step=5)])
        assert not errors
        assert len(tokens) == NUM_SHORT + 4
    finally:
        del others
        runner.close()
