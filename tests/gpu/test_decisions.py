"""A run on a card decides as the simulation of the same workload does, event by event."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.trace.check import check
from nanovllm.trace.diff import diff
from nanovllm.trace.events import AnyEvent, ChunkScheduled, Preempted, PrefixHit
from sim import simulate
from sim.outputs import RecordedOutputs
from sim.workload import Prompts, WorkloadRequest, to_requests
from tests.gpu.models import VOCAB_SIZE

pytestmark = pytest.mark.gpu

OPTIONS: dict[str, dict[str, Any]] = {
    "roomy": {"num_kvcache_blocks": 400},
    "tight": {"num_kvcache_blocks": 20},
    "tight, in chunks": {"num_kvcache_blocks": 20, "max_num_batched_tokens": 30},
    "tight, with a watermark": {"num_kvcache_blocks": 24, "watermark_blocks": 3, "max_num_seqs": 12},
    "tight, mixed": {"policy": "mixed", "num_kvcache_blocks": 20, "max_num_batched_tokens": 40},
    "tight, mixed, by the next chunk": {
        "policy": "mixed",
        "admit_by": "chunk",
        "max_prefill_tokens_per_request": 25,
        "num_kvcache_blocks": 20,
        "max_num_batched_tokens": 40,
    },
    "tight, by priority": {"policy": "priority", "num_kvcache_blocks": 20, "max_num_batched_tokens": 40},
    "without a cache": {"num_kvcache_blocks": 30, "enable_prefix_caching": False},
}


@pytest.fixture(scope="module")
def config(wide_models: dict[str, Path]) -> Config:
    return Config(
        model=str(wide_models["small"]),
        dtype="bfloat16",
        attention="triton",
        max_model_len=192,
        max_num_seqs=8,
        max_num_batched_tokens=256,
        kvcache_block_size=16,
        enforce_eager=True,
    )


def draw_workload(seed: int) -> list[WorkloadRequest]:
    rng = random.Random(seed)
    requests, step = [], 0
    for index in range(40):
        step += rng.choice((0, 0, 0, 1, 2, 9))
        prompt_len = rng.randint(1, 110)
        prefix = rng.choice(("a", "a", "b", None))
        requests.append(
            WorkloadRequest(
                id=index,
                prompt_len=prompt_len,
                prefix=prefix,
                prefix_len=None if prefix is None else rng.randint(0, prompt_len),
                max_tokens=rng.randint(1, 60),
                arrival_step=step,
                ignore_eos=True,
                temperature=rng.choice((0.0, 0.7, 1.3)),
                top_k=rng.choice((0, 0, 0, 20)),
                priority=rng.randint(-1, 1),
            )
        )
    return requests


def record(config: Config, workload: list[WorkloadRequest]) -> list[AnyEvent]:
    runner = ModelRunner(config)
    events: list[AnyEvent] = []
    engine = Engine(config, runner, emit=events.append, vocab_size=runner.vocab_size)
    for result in engine.run(to_requests(workload, Prompts(seed=config.seed, vocab_size=VOCAB_SIZE))):
        assert result.error is None
    runner.close()
    return events


@pytest.mark.parametrize("lookahead", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_decisions_are_those_of_the_simulator(name: str, lookahead: bool, config: Config, fresh_seed: int) -> None:
    config = replace(config, lookahead=lookahead, **OPTIONS[name])
    workload = draw_workload(fresh_seed)
    events = record(config, workload)
    assert not check(events)
    simulated = simulate(config, workload, outputs=RecordedOutputs(events))
    difference = diff(events, simulated.events)
    assert difference is None, str(difference)
    kinds = {type(event) for event in events}
    if name.startswith("tight") and not config.watermark_blocks:  # which spares most of them preemptions
        assert Preempted in kinds
    if "chunks" in name:
        assert ChunkScheduled in kinds
    if config.enable_prefix_caching:
        assert PrefixHit in kinds
