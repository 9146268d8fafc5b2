"""The same 64 requests answered in many ways: alone and together, with graphs and without, sharing prefixes or not,
chunked, preempted, looked ahead of. The answers are the same: in float32 all tokens, in bfloat16 up to near ties."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nanovllm.config import Config
from nanovllm.trace.events import Preempted, PrefixHit
from tests.gpu.models import Reference
from tests.gpu.runs import Run, assert_greedy_up_to_near_ties, assert_same_up_to_near_ties, draw_tokens, run_once

# Before the kernels: where there is no Triton, it skips this module.
pytest.importorskip("triton", reason="needs Triton, which there is for Linux only")

from nanovllm.attention.triton.prefix_launch import PrefixAttention

pytestmark = pytest.mark.gpu

NUM_TOKENS = 16
NUM_SHARING = 48
WAYS: dict[str, dict[str, Any]] = {
    "one at a time": {"max_num_seqs": 1},
    "twelve at a time": {"max_num_seqs": 12},
    "without graphs": {"enforce_eager": True},
    "without looking ahead": {"lookahead": False},
    "without shared prefixes": {"enable_prefix_caching": False},
    "chunked": {"max_num_batched_tokens": 72},
    "preempted": {"num_kvcache_blocks": 90},
    "preempted and chunked, without graphs": {
        "num_kvcache_blocks": 60,
        "max_num_batched_tokens": 50,
        "enforce_eager": True,
        "lookahead": False,
    },
    "in mixed steps": {"policy": "mixed", "max_num_batched_tokens": 150},
    "preempted, in mixed steps": {
        "policy": "mixed",
        "admit_by": "chunk",
        "num_kvcache_blocks": 90,
        "max_num_batched_tokens": 100,
    },
    "in large blocks": {"kvcache_block_size": 256, "num_kvcache_blocks": 66},
    "by plain torch": {"attention": "torch"},
}


def make_prompts() -> list[list[int]]:
    rng = random.Random(5)
    prefix = draw_tokens(rng, 160)
    shared = [[*prefix, *draw_tokens(rng, rng.randint(1, 40))] for _ in range(NUM_SHARING)]
    own = [draw_tokens(rng, rng.randint(1, 150)) for _ in range(64 - NUM_SHARING)]
    prompts = shared + own
    rng.shuffle(prompts)
    return prompts


PROMPTS = make_prompts()


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def config(request: pytest.FixtureRequest, wide_models: dict[str, Path]) -> Config:
    return Config(
        model=str(wide_models["qwen3"]),
        dtype=request.param,
        attention="triton",
        max_model_len=256,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        kvcache_block_size=16,
        num_kvcache_blocks=1000,
    )


@pytest.fixture(scope="module")
def reference(config: Config) -> Iterator[Reference]:
    return Reference(Path(config.model), getattr(torch, config.dtype))


class Plans:
    """Notes for how many of the plans of shared prefixes it paid to make one."""

    def __init__(self) -> None:
        self.num_used = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = PrefixAttention.plan

        def planning(prefix: PrefixAttention, *args: Any, **options: Any) -> int:
            saved_tokens = plan(prefix, *args, **options)
            self.num_used += saved_tokens > 0
            return saved_tokens

        monkeypatch.setattr(PrefixAttention, "plan", planning)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    plans = Plans()
    plans.watch(monkeypatch)
    return plans


@pytest.fixture(scope="module")
def together(config: Config) -> Run:
    """All at once, with everything that makes it fast."""
    with pytest.MonkeyPatch.context() as patch:
        plans = Plans()
        plans.watch(patch)
        got = run_once(config, PROMPTS, NUM_TOKENS)
    assert plans.num_used > 0, "the prefix was not read once for all"
    return got


def test_answers_are_the_likeliest(reference: Reference, together: Run) -> None:
    assert together.has(PrefixHit)
    assert not together.has(Preempted)
    assert_greedy_up_to_near_ties(reference, PROMPTS, together.tokens)


@pytest.mark.parametrize("way", WAYS)
def test_however_they_are_computed(way: str, config: Config, reference: Reference, together: Run, plans: Plans) -> None:
    options = WAYS[way]
    got = run_once(replace(config, **options), PROMPTS, NUM_TOKENS)
    assert got.has(Preempted) == way.startswith("preempted")
    assert got.has(PrefixHit) == options.get("enable_prefix_caching", "large" not in way)
    if way in ("without graphs", "without looking ahead"):
        assert plans.num_used > 0
    if way in ("without shared prefixes", "one at a time", "by plain torch"):
        assert plans.num_used == 0
    if config.dtype == "float32":
        assert got.tokens == together.tokens
    else:
        assert_same_up_to_near_ties(reference, PROMPTS, got.tokens, together.tokens)
