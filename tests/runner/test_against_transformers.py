"""Greedy tokens equal transformers' ``generate`` in float32, however the scheduler cuts, reuses or repeats the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import Preempted, PrefixHit
from tests.tiny_models import FAMILIES, VOCAB_SIZE, greedy_tokens, make_model

NUM_TOKENS = 14
PREFIX = [(7 * i * i + 3) % VOCAB_SIZE for i in range(33)]
PROMPTS = [
    [5],
    [17, 3, 99, 4, 4, 120],
    PREFIX,
    [*PREFIX, 8, 1, 44],
    [(11 * i + 2) % VOCAB_SIZE for i in range(21)],
    [*PREFIX[:20], 77],
]


@cache
def expected_tokens(family: str) -> list[list[int]]:
    model = make_model(family)
    return [greedy_tokens(model, prompt, NUM_TOKENS) for prompt in PROMPTS]


def run(directory: Path, **options: Any) -> tuple[list[list[int]], list[object]]:
    """Tokens of each prompt, and the events of the run; a new prompt comes in before every third step."""
    config = Config(model=str(directory), device="cpu", max_model_len=512, **options)
    events: list[object] = []
    engine = Engine(config, ModelRunner(config), emit=events.append)
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    sequences = {}
    requests = [
        Request(request_id=i, prompt_token_ids=prompt, sampling_params=params, arrival_step=3 * i)
        for i, prompt in enumerate(PROMPTS)
    ]
    for result in engine.run(requests):
        sequences |= {seq.request_id: seq for seq in result.finished}
    return [sequences[i].completion_token_ids for i in range(len(PROMPTS))], events


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [1, 3, 16, 256])
def test_tokens_are_those_of_transformers(family: str, block_size: int, tiny_model: Callable[[str], Path]) -> None:
    tokens, events = run(tiny_model(family), kvcache_block_size=block_size, num_kvcache_blocks=512)
    assert tokens == expected_tokens(family)
    assert any(isinstance(event, PrefixHit) for event in events) == (block_size < 256)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_chunks_preemptions_and_reuse_change_nothing(
    family: str, block_size: int, enable_prefix_caching: bool, tiny_model: Callable[[str], Path]
) -> None:
    tokens, events = run(
        tiny_model(family),
        kvcache_block_size=block_size,
        num_kvcache_blocks=-(-64 // block_size),
        max_num_batched_tokens=7,
        max_num_seqs=5,
        enable_prefix_caching=enable_prefix_caching,
    )
    assert tokens == expected_tokens(family)
    assert any(isinstance(event, Preempted) for event in events)
