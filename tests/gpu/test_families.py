"""Each family on a card answers as transformers does: equal logits in float32, in bfloat16 up to near ties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nanovllm.config import Config
from tests.gpu.models import VOCAB_SIZE as WIDE_VOCAB_SIZE, WIDE_FAMILIES, Reference
from tests.gpu.runs import assert_greedy_up_to_near_ties, assert_logits, run_once
from tests.runner.conftest import tiny_model
from tests.tiny_models import FAMILIES, VOCAB_SIZE

__all__ = ["tiny_model"]

pytestmark = pytest.mark.gpu

NUM_TOKENS = 24
LENGTHS = (1, 2, 15, 16, 17, 33, 64, 100, 150)
OPTIONS: dict[str, Any] = {
    "max_model_len": 256,
    "max_num_batched_tokens": 512,
    "kvcache_block_size": 16,
    "num_kvcache_blocks": 160,
}


def prompts_below(vocab_size: int) -> list[list[int]]:
    return [[(7 * i * i + 31 * index + 5) % vocab_size for i in range(length)] for index, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_models(family: str, dtype: str, tiny_model: Callable[[str], Path]) -> None:
    directory = tiny_model(family)
    config = Config(model=str(directory), dtype=dtype, **OPTIONS)
    check(directory, config, prompts_below(VOCAB_SIZE))


@pytest.mark.parametrize("attention", ["triton", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", WIDE_FAMILIES)
def test_models_of_realistic_width(family: str, dtype: str, attention: str, wide_models: dict[str, Path]) -> None:
    directory = wide_models[family]
    config = Config(model=str(directory), dtype=dtype, attention=attention, max_num_seqs=9, **OPTIONS)
    check(directory, config, prompts_below(WIDE_VOCAB_SIZE))


def check(directory: Path, config: Config, prompts: list[list[int]]) -> None:
    got = run_once(config, prompts, NUM_TOKENS, watch=config.dtype == "float32")
    assert [len(answer) for answer in got.tokens] == [NUM_TOKENS] * len(prompts)
    reference = Reference(directory, getattr(torch, config.dtype))
    if config.dtype == "float32":
        assert_logits(reference, prompts, got)
    assert_greedy_up_to_near_ties(reference, prompts, got.tokens)
