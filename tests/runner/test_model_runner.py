"""The runner as a backend: attributes, random weights, sampling under preemption, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.errors import ConfigError, MemoryPoolError, ModelError, StepError
from nanovllm.model_config import RopeSpec
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.eager_steps import EagerSteps
from nanovllm.runner.kv_cache import CPU_POOL_BYTES, block_bytes
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import Preempted
from tests.tiny_models import VOCAB_SIZE

SPEC = ModelSpec(
    architecture="Qwen3ForCausalLM",
    num_layers=2,
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=97,
    max_position_embeddings=128,
    rms_norm_eps=1e-6,
    rope=RopeSpec(theta=10000.0),
    qk_norm=True,
)
CONFIG = Config(device="cpu", max_model_len=256, kvcache_block_size=4, num_kvcache_blocks=200)


def requests(num: int, **params: Any) -> list[Request]:
    return [
        Request(
            request_id=index,
            prompt_token_ids=[(13 * index + 5 * i) % 97 for i in range(3 + 4 * index)],
            sampling_params=SamplingParams(max_tokens=16, **params),
        )
        for index in range(num)
    ]


def run(config: Config, runner: ModelRunner, work: list[Request]) -> tuple[dict[object, list[int]], list[object]]:
    events: list[object] = []
    engine = Engine(config, runner, emit=events.append)
    tokens = {}
    for result in engine.run(work):
        tokens |= {seq.request_id: seq.completion_token_ids for seq in result.finished}
    return tokens, events


def test_attributes(tiny_model: Callable[[str], Path]) -> None:
    runner = ModelRunner(replace(CONFIG, model=str(tiny_model("qwen3")), num_kvcache_blocks=9, max_model_len=4096))
    assert runner.name == "cpu"
    assert runner.num_kv_blocks == 9
    assert runner.vocab_size == VOCAB_SIZE
    assert runner.max_model_len == 512
    assert runner.eos_token_ids == frozenset()
    assert runner.model_path == tiny_model("qwen3")
    assert runner.spec == ModelSpec.from_directory(tiny_model("qwen3"))
    assert runner.device == torch.device("cpu")
    assert runner.dtype == torch.float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_random_weights_in_every_type(dtype: str) -> None:
    config = replace(CONFIG, dtype=dtype)
    runner = ModelRunner(config, spec=SPEC)
    assert (runner.dtype, runner.model_path) == (getattr(torch, dtype), None)
    tokens, _ = run(config, runner, requests(3, temperature=0))
    assert [len(completion) for completion in tokens.values()] == [16, 16, 16]
    assert run(config, ModelRunner(config, spec=SPEC), requests(3, temperature=0))[0] == tokens


@pytest.mark.parametrize("params", [{}, {"seed": 3, "top_p": 0.9}, {"top_k": 20, "min_p": 0.02, "temperature": 0.8}])
def test_draws_survive_preemption_chunks_and_company(params: dict[str, Any]) -> None:
    """Every request draws the same tokens alone and in a crowd that is cut up, thrown out and recomputed."""
    crowded = replace(CONFIG, num_kvcache_blocks=13, max_num_batched_tokens=6)
    runner = ModelRunner(crowded, spec=SPEC)
    tokens, events = run(crowded, runner, requests(4, **params))
    assert any(isinstance(event, Preempted) for event in events)
    for request in requests(4, **params):
        alone, _ = run(CONFIG, ModelRunner(CONFIG, spec=SPEC), [request])
        assert alone[request.request_id] == tokens[request.request_id]


def test_engine_seed_moves_requests_without_seed_only() -> None:
    work = [*requests(2), *(replaced(request, seed=8) for request in requests(4)[2:])]
    base = ModelRunner(CONFIG, spec=SPEC)
    tokens, _ = run(CONFIG, base, work)
    other_seed = replace(CONFIG, seed=1)
    base._steps = base._new_steps(base.num_kv_blocks, other_seed)  # the same weights
    moved, _ = run(other_seed, base, work)
    assert [tokens[index] == moved[index] for index in range(4)] == [False, False, True, True]


def replaced(request: Request, **params: Any) -> Request:
    return Request(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling_params=replace(request.sampling_params, **params),
    )


def test_default_pool_on_a_cpu() -> None:
    config = replace(CONFIG, num_kvcache_blocks=-1, kvcache_block_size=256)
    runner = ModelRunner(config, spec=SPEC)
    assert runner.num_kv_blocks == CPU_POOL_BYTES // block_bytes(SPEC, 256, torch.float32)


# ---- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory.\nDetails"),
        RuntimeError("[...] DefaultCPUAllocator: can't"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_out_of_memory_fails_the_step_and_not_the_engine(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ModelRunner(CONFIG, spec=SPEC)
    engine = Engine(CONFIG, runner)
    for request in requests(2):
        engine.add(request)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "forward", fail)
        result = engine.step()
    assert isinstance(result.error, StepError)
    assert "a step of 10 tokens in 2 sequences ran out of memory on cpu" in str(result.error)
    assert [seq.finish_reason for seq in result.finished] == ["error", "error"]
    assert len(run(CONFIG, runner, requests(2))[0]) == 2


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Decoder, "forward", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        run(CONFIG, ModelRunner(CONFIG, spec=SPEC), requests(1))


def test_options_that_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"tensor_parallel_size=3 is not allowed: .* 4 heads: 1, 2, 4$"):
        ModelRunner(replace(CONFIG, tensor_parallel_size=3), spec=SPEC)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device='cuda' is not allowed: torch finds no NVIDIA GPU"):
        ModelRunner(replace(CONFIG, device="cuda"), spec=SPEC)
    assert ModelRunner(replace(CONFIG, device="auto"), spec=SPEC).name == "cpu"


def test_missing_model() -> None:
    with pytest.raises(ModelError, match="model '' does not exist"):
        ModelRunner(CONFIG)


def test_pool_and_weights_larger_than_the_machine() -> None:
    with pytest.raises(MemoryPoolError, match="lower num_kvcache_blocks"):
        ModelRunner(replace(CONFIG, num_kvcache_blocks=10**7, kvcache_block_size=1000), spec=SPEC)
    with pytest.raises(MemoryPoolError, match=r"weights need \S+ GiB as float32, \S+ GiB more than there are on cpu"):
        ModelRunner(CONFIG, spec=replace(SPEC, vocab_size=10**13))


def test_no_room_for_graphs_beside_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nDetails")

    monkeypatch.setattr(EagerSteps, "record_graphs", fail)
    with pytest.raises(MemoryPoolError, match=r"beside a KV pool of 200 blocks .* for CUDA graphs: lower num_kvcache"):
        ModelRunner(CONFIG, spec=SPEC)


def test_steps_are_computed_by_the_threads_that_are_chosen() -> None:
    before = torch.get_num_threads()
    try:
        for num_threads in (1, 2):
            config = replace(CONFIG, num_threads=num_threads)
            run(config, ModelRunner(config, spec=SPEC), requests(1))
            assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(before)


def test_without_a_choice_a_model_is_given_a_moderate_length() -> None:
    assert (
        ModelRunner(replace(CONFIG, max_model_len=-1), spec=replace(SPEC, max_position_embeddings=9999)).max_model_len
        == 4096
    )
    assert ModelRunner(replace(CONFIG, max_model_len=-1), spec=SPEC).max_model_len == SPEC.max_position_embeddings


def test_closing_twice_is_fine_and_using_it_then_is_not() -> None:
    runner = ModelRunner(CONFIG, spec=SPEC)
    runner.close()
    runner.close()
    with pytest.raises(AssertionError, match="the runner is closed"):
        run(CONFIG, runner, requests(1))
