"""Where others fell: sizes between graphs, the last token a sequence may have, tables that grow and shrink, prompts in
pieces or wholly cached, decodes after a preemption. Every logit is held against transformers, in float32."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nanovllm.config import Config
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.trace.events import ChunkScheduled, Preempted, PrefixHit
from tests.gpu.models import Reference
from tests.gpu.runs import Run, assert_logits, draw_tokens, run, run_once

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def config(wide_models: dict[str, Path]) -> Config:
    return Config(
        model=str(wide_models["small"]),
        dtype="float32",
        attention="triton",
        max_model_len=256,
        max_num_seqs=6,
        max_num_batched_tokens=512,
        kvcache_block_size=16,
        num_kvcache_blocks=120,
    )


@pytest.fixture(scope="module")
def reference(config: Config) -> Iterator[Reference]:
    return Reference(Path(config.model), torch.float32)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return draw_tokens(random.Random(1000 * length + seed), length)


def check(reference: Reference, config: Config, prompts: list[list[int]], num_tokens: Any, **options: Any) -> Run:
    got = run_once(config, prompts, num_tokens, watch=True, **options)
    assert_logits(reference, prompts, got)
    return got


# ---- numbers of rows -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[12, 100])
def many(request: pytest.FixtureRequest, config: Config) -> Iterator[tuple[ModelRunner, Config]]:
    """A runner for at most so many rows; ``watch`` is on from its first run on."""
    config = replace(config, max_num_seqs=request.param, num_kvcache_blocks=5 * request.param)
    runner = ModelRunner(config)
    yield runner, config
    runner.close()


@pytest.mark.parametrize("missing", [3, 2, 1, 0])
def test_almost_as_many_rows_as_there_may_be(
    missing: int, many: tuple[ModelRunner, Config], reference: Reference
) -> None:
    """9 to 12 of 12, and 97 to 100 of 100: these have graphs too."""
    runner, config = many
    prompts = [prompt_of(1 + 5 * (index % 9), index) for index in range(config.max_num_seqs - missing)]
    # They end one after the other, so every smaller number of rows comes, too.
    got = run(runner, config, prompts, [3 + index % 12 for index in range(len(prompts))], watch=True)
    assert_logits(reference, prompts, got)


# ---- block tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_model_len", [128, 121, 113, 112])
def test_the_last_token_that_a_sequence_may_have(max_model_len: int, config: Config, reference: Reference) -> None:
    config = replace(config, max_model_len=max_model_len)
    counts = [1, 2, 15, 16, 17, 20]
    got = check(reference, config, [prompt_of(max_model_len - count) for count in counts], counts)
    assert [len(answer) for answer in got.tokens] == counts


@pytest.mark.parametrize("enforce_eager", [False, True])
def test_narrow_tables_after_wide_ones(enforce_eager: bool, config: Config, reference: Reference) -> None:
    """Short sequences take the rows of long ones, whose blocks their rows still name, and grow into new columns."""
    config = replace(config, enforce_eager=enforce_eager)
    prompts = [prompt_of(200), prompt_of(180), prompt_of(3), prompt_of(17), prompt_of(30), prompt_of(1), prompt_of(90)]
    check(reference, config, prompts, [5, 9, 40, 40, 40, 60, 20], arrival_steps=[0, 0, 8, 10, 12, 14, 16])


@pytest.mark.parametrize("block_size", [16, 32, 64, 128, 256])
def test_block_sizes(block_size: int, config: Config, reference: Reference) -> None:
    config = replace(config, kvcache_block_size=block_size, max_model_len=400, num_kvcache_blocks=1920 // block_size)
    lengths = (1, block_size - 1, block_size, block_size + 1, 3)
    check(reference, config, [prompt_of(length) for length in lengths], 20)


# ---- prompts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 7, 16, 33, 49, 97])
def test_prompts_in_chunks(budget: int, config: Config, reference: Reference) -> None:
    config = replace(config, max_num_batched_tokens=budget)
    prompts = [prompt_of(length) for length in (40, 1, 16, 57)]
    got = check(reference, config, prompts, 12, arrival_steps=[0, 3, 5, 9])
    assert got.has(ChunkScheduled)


@pytest.mark.parametrize("budget", [512, 16384])
def test_steps_of_many_sizes(budget: int, config: Config, reference: Reference) -> None:
    """Prompts alone and with others, of numbers of tokens around those that graphs are recorded for, and beyond."""
    config = replace(config, max_num_batched_tokens=budget, max_num_seqs=40, num_kvcache_blocks=800)
    lengths = [31, 32, 33, 47, 48, 49, 95, 96, 97, 200, 5, 8, *[233 + index % 5 for index in range(36)]]
    arrivals = [*range(0, 20, 2), 20, 20, *[24] * 36]
    check(reference, config, [prompt_of(length) for length in lengths], 6, arrival_steps=arrivals)


@pytest.mark.parametrize("length", [16, 17, 31, 32, 33, 96])
def test_a_prompt_that_is_wholly_cached(length: int, config: Config, reference: Reference) -> None:
    """Its last block is computed again: there would be nothing to draw from."""
    prompts = [prompt_of(length)] * 4
    got = check(reference, config, prompts, 10, arrival_steps=[0, 3, 20, 20])
    assert got.has(PrefixHit) == (length > config.kvcache_block_size)
    assert len({tuple(answer) for answer in got.tokens}) == 1


@pytest.mark.parametrize("options", [{}, {"lookahead": False}, {"max_num_batched_tokens": 24}, {"enforce_eager": True}])
def test_decodes_after_a_preemption(options: dict[str, Any], config: Config, reference: Reference) -> None:
    config = replace(config, num_kvcache_blocks=16, **options)
    prompts = [prompt_of(length) for length in (30, 45, 14, 60, 31)]
    got = check(reference, config, prompts, 50)
    assert got.has(Preempted)


# ---- two at once ----------------------------------------------------------------------------------------------


def test_two_runners_beside_each_other(config: Config, reference: Reference) -> None:
    """Their graphs, pools and steps are their own."""
    runners = [ModelRunner(config), ModelRunner(config)]
    for length in (20, 50):
        for runner in runners:
            prompts = [prompt_of(length), prompt_of(length + 9)]
            got = run(runner, config, prompts, 8, watch=True)
            assert_logits(reference, prompts, got)
    for runner in runners:
        runner.close()
