"""Two cards answer as one does, with and without graphs; and when one of the two processes ends, so does the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.errors import StepError
from nanovllm.runner import rank
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import Preempted, PrefixHit
from tests.gpu.models import VOCAB_SIZE, WIDE_FAMILIES
from tests.gpu.runs import run, run_once
from tests.runner.ends import shared_memory
from tests.runner.tensor_parallel.runs import wait_until_ended

pytest.importorskip("triton", reason="needs Triton, which there is for Linux only")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs; torch finds fewer"),
]

PROJECT = Path(__file__).parents[2]
NUM_TOKENS = 24
PREFIX = [(5 * i * i + 3) % VOCAB_SIZE for i in range(70)]
PROMPTS = [
    *([*PREFIX, *((7 * i + index) % VOCAB_SIZE for i in range(1 + 3 * index))] for index in range(12)),
    *([(11 * i * i + index) % VOCAB_SIZE for i in range(1 + 13 * index)] for index in range(12)),
]
WAYS: dict[str, dict[str, Any]] = {
    "graphs": {},
    "without graphs": {"enforce_eager": True},
    "without looking ahead": {"lookahead": False},
    "preempted and chunked": {"num_kvcache_blocks": 40, "max_num_batched_tokens": 50},
    "plain torch": {"attention": "torch"},
}


def config_for(directory: Path, size: int, **options: Any) -> Config:
    base = Config(
        model=str(directory),
        device="cuda",
        dtype="float32",
        attention="triton",
        max_model_len=256,
        max_num_seqs=32,
        max_num_batched_tokens=1024,
        kvcache_block_size=16,
        num_kvcache_blocks=400,
        tensor_parallel_size=size,
    )
    return replace(base, **options)


@pytest.mark.parametrize("family", [family for family in WIDE_FAMILIES if family != "mistral"])  # it has 9 heads
def test_families(family: str, wide_models: dict[str, Path]) -> None:
    alone, pair = (run_once(config_for(wide_models[family], size), PROMPTS, NUM_TOKENS) for size in (1, 2))
    assert pair.tokens == alone.tokens


@pytest.fixture(scope="module")
def alone(wide_models: dict[str, Path]) -> list[list[int]]:
    return run_once(config_for(wide_models["qwen3"], 1), PROMPTS, NUM_TOKENS).tokens


@pytest.mark.parametrize("way", WAYS)
def test_ways(way: str, wide_models: dict[str, Path], alone: list[list[int]]) -> None:
    got = run_once(config_for(wide_models["qwen3"], 2, **WAYS[way]), PROMPTS, NUM_TOKENS)
    assert got.tokens == alone
    assert got.has(Preempted) == way.startswith("preempted")
    assert got.has(PrefixHit)


@pytest.mark.parametrize("params", [{"temperature": 0.8}, {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "seed": 3}])
def test_draws(params: dict[str, Any], wide_models: dict[str, Path]) -> None:
    alone, pair = (run_once(config_for(wide_models["small"], size), PROMPTS, NUM_TOKENS, **params) for size in (1, 2))
    assert pair.tokens == alone.tokens


def test_the_pool_is_twice_as_large(wide_models: dict[str, Path]) -> None:
    """Each card has half of the KV heads, and half of the weights."""
    blocks = []
    for size in (1, 2):
        runner = ModelRunner(config_for(wide_models["qwen3"], size, num_kvcache_blocks=-1, gpu_memory_utilization=0.3))
        blocks.append(runner.num_kv_blocks)
        runner.close()
    assert 1.9 * blocks[0] < blocks[1] < 2.2 * blocks[0]


@pytest.fixture
def pair(wide_models: dict[str, Path]) -> Iterator[ModelRunner]:
    runner = ModelRunner(config_for(wide_models["small"], 2))
    yield runner
    runner.close()


def test_no_memory_for_a_step_fails_its_requests_only(pair: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(pair, pair.config, PROMPTS, NUM_TOKENS).tokens
    with monkeypatch.context() as patch:
        patch.setattr(rank, "activation_bytes", lambda *_: 2**50)
        engine = Engine(pair.config, pair)
        engine.add(Request(request_id=0, prompt_token_ids=PROMPTS[0], sampling_params=SamplingParams(max_tokens=4)))
        result = engine.step()
    assert isinstance(result.error, StepError)
    assert run(pair, pair.config, PROMPTS, NUM_TOKENS).tokens == expected


# ---- the end ---------------------------------------------------------------------------------------------------

ENDLESS = """
    import sys
    from pathlib import Path
    from nanovllm.errors import WorkerError
    from tests.gpu.test_tensor_parallel import *
    runner = ModelRunner(config_for(Path(sys.argv[1]), 2))
    print(*runner._workers.process_ids, flush=True)
    try:
        while True:
            run(runner, runner.config, PROMPTS, 100)
            print("answered", flush=True)
    except WorkerError as error:
        print(error, file=sys.stderr)
        runner.close()
        sys.exit(7)
    """


@pytest.fixture
def endless(wide_models: dict[str, Path]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program that computes on both cards, in the middle of a step most likely; and the process of rank 1."""
    before = shared_memory()
    program = [sys.executable, "-c", textwrap.dedent(ENDLESS), str(wide_models["small"])]
    with subprocess.Popen(program, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker_id = int(process.stdout.readline())
        assert process.stdout.readline() == "answered\n"
        yield process, worker_id
    wait_until_ended(worker_id)
    assert shared_memory() == before


def test_rank_1_is_killed(endless: tuple[subprocess.Popen[str], int]) -> None:
    process, worker_id = endless
    os.kill(worker_id, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert f"rank 1 (process {worker_id}) was killed by SIGKILL\n" in err
    assert process.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_rank_0_is_ended(number: signal.Signals, endless: tuple[subprocess.Popen[str], int]) -> None:
    process, _ = endless
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode in (-number, 1)
