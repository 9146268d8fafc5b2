"""Runs of tiny models on several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from select import select
from typing import Any

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent

CONFIG = Config(
    device="cpu",
    num_threads=1,
    max_model_len=128,
    kvcache_block_size=4,
    num_kvcache_blocks=25,
    max_num_batched_tokens=9,
)
"""A pool and a budget in which prompts are chunked and sequences preempted."""
DRAWS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9},
    {"temperature": 0},
    {"temperature": 1.1, "seed": 5},
    {"temperature": 0.8, "top_k": 12, "top_p": 0.9},
    {"temperature": 0.9, "min_p": 0.02},
]


def requests(draws: list[dict[str, Any]] = DRAWS, first_id: int = 0, max_tokens: int = 14) -> list[Request]:
    """One for each of ``draws``. They begin alike, so that they share blocks."""
    return [
        Request(
            request_id=first_id + index,
            prompt_token_ids=[*range(1, 10 + index % 3), *((7 * index + i) % 90 for i in range(3 + index))],
            sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True, **draw),
            arrival_step=index,
        )
        for index, draw in enumerate(draws)
    ]


def answers(runner: ModelRunner, work: list[Request], events: list[AnyEvent] | None = None) -> dict[object, list[int]]:
    """What each request is answered; all are answered to their end."""
    engine = Engine(runner.config, runner, emit=None if events is None else events.append)
    tokens = {}
    for result in engine.run(work):
        assert result.error is None
        tokens |= {seq.request_id: seq.completion_token_ids for seq in result.finished}
    assert len(tokens) == len(work)
    return tokens


@contextmanager
def running(
    size: int, *, model: Path | None = None, spec: ModelSpec | None = None, **options: Any
) -> Iterator[ModelRunner]:
    """A runner of so many ranks; at the end, none of their processes is left."""
    config = replace(CONFIG, tensor_parallel_size=size, model="" if model is None else str(model), **options)
    runner = ModelRunner(config, spec=spec)
    try:
        yield runner
    finally:
        runner.close()
        assert not any(is_alive(process_id) for process_id in process_ids(runner))


def process_ids(runner: ModelRunner) -> list[int]:
    """Of the other ranks."""
    return [] if runner._workers is None else runner._workers.process_ids


def is_alive(process_id: int) -> bool:
    """Whether there is such a process, one that has ended and nobody has asked about included."""
    return Path(f"/proc/{process_id}").exists()


def wait_until_ended(process_id: int) -> None:
    """Wait for a process that is not ours."""
    with suppress(ProcessLookupError):  # it is gone already
        descriptor = os.pidfd_open(process_id)
        try:
            select([descriptor], [], [])
        finally:
            os.close(descriptor)
