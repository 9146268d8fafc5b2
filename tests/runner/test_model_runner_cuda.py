"""The runner on a card: the CPU's tokens, a pool sized from the card's memory, and running out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.errors import MemoryPoolError, StepError
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.kv_cache import block_bytes
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.sampler import gumbel_noise
from nanovllm.sampling_params import SamplingParams
from tests.gpu.memory import all_taken_but
from tests.tiny_models import FAMILIES, VOCAB_SIZE, greedy_tokens, make_model

pytestmark = pytest.mark.gpu

SPEC = replace(ModelSpec.preset("qwen3-0.6b"), num_layers=2)
PROMPTS = [[(7 * i * i + index) % VOCAB_SIZE for i in range(4 + 9 * index)] for index in range(5)]
PARAMS = SamplingParams(temperature=0, max_tokens=12)


def generate(engine: Engine) -> list[list[int]]:
    sequences = [
        engine.add(Request(request_id=index, prompt_token_ids=prompt, sampling_params=PARAMS))
        for index, prompt in enumerate(PROMPTS)
    ]
    for result in engine.run():
        assert result.error is None
    return [seq.completion_token_ids for seq in sequences]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options", [{"num_kvcache_blocks": 200}, {"num_kvcache_blocks": 16, "max_num_batched_tokens": 7}]
)
def test_tokens_are_those_of_transformers(
    family: str, options: dict[str, int], tiny_model: Callable[[str], Path]
) -> None:
    model = make_model(family)
    expected = [greedy_tokens(model, prompt, PARAMS.max_tokens) for prompt in PROMPTS]
    config = Config(
        model=str(tiny_model(family)), device="cuda", dtype="float32", kvcache_block_size=4, max_model_len=64, **options
    )
    runner = ModelRunner(config)
    assert runner.name == "cuda, torch attention"  # blocks of 4 tokens are none for the kernels
    assert generate(Engine(config, runner)) == expected
    runner.close()


def test_pool_takes_its_share_of_the_card() -> None:
    config = Config(device="cuda", gpu_memory_utilization=0.3)
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    runner = ModelRunner(config, spec=SPEC)
    assert runner.dtype == torch.bfloat16
    pool_bytes = runner.num_kv_blocks * block_bytes(SPEC, config.kvcache_block_size, runner.dtype)
    assert pool_bytes + SPEC.weight_bytes < 0.3 * total_bytes
    generate(Engine(config, runner))
    taken_bytes = free_bytes - torch.cuda.mem_get_info()[0]
    assert 0.2 * total_bytes < taken_bytes < 0.32 * total_bytes
    runner.close()
    assert torch.cuda.mem_get_info()[0] > free_bytes - 2**29


def test_a_second_runner_takes_its_own_share() -> None:
    config = Config(device="cuda", gpu_memory_utilization=0.3)
    first, second = (ModelRunner(config, spec=SPEC) for _ in range(2))
    assert first.num_kv_blocks == pytest.approx(second.num_kv_blocks, rel=0.02)
    first.close()
    second.close()


def test_share_too_small_for_one_sequence() -> None:
    with pytest.raises(MemoryPoolError, match=r"GiB are missing; raise gpu_memory_utilization=0\.001"):
        ModelRunner(Config(device="cuda", gpu_memory_utilization=0.001), spec=SPEC)


def test_no_room_for_the_largest_step() -> None:
    """The weights take 66 MB, a step of 16,384 tokens 400."""
    message = r"no room on cuda:0 for the largest step: lower max_num_batched_tokens="
    with all_taken_but(2**28), pytest.raises(MemoryPoolError, match=message):
        ModelRunner(Config(device="cuda"), spec=replace(SPEC, vocab_size=1000))


def test_pool_larger_than_the_card() -> None:
    with pytest.raises(MemoryPoolError, match=r"GiB more than there are on cuda:0: lower num_kvcache_blocks"):
        ModelRunner(Config(device="cuda", num_kvcache_blocks=10**7), spec=SPEC)


def test_out_of_memory_fails_the_step_only() -> None:
    config = Config(device="cuda", num_kvcache_blocks=80)
    engine = Engine(config, ModelRunner(config, spec=SPEC))
    for index in range(4):
        prompt = [(i + index) % 1000 for i in range(4000)]
        engine.add(Request(request_id=index, prompt_token_ids=prompt, sampling_params=PARAMS))
    with all_taken_but(2**26):
        result = engine.step()
    assert isinstance(result.error, StepError)
    assert "a step of 16000 tokens in 4 sequences ran out of memory on cuda:0" in str(result.error)
    assert [len(tokens) for tokens in generate(engine)] == [12] * len(PROMPTS)


def test_noise_is_the_same_as_on_a_cpu() -> None:
    keys = torch.randint(-(2**31), 2**31, (7, 2), generator=torch.Generator().manual_seed(0)).int()
    torch.testing.assert_close(gumbel_noise(keys.cuda(), 5000).cpu(), gumbel_noise(keys, 5000), atol=1e-5, rtol=1e-5)
