"""What the engine itself takes for a step on this machine: its loop with a backend that computes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from sim.cost_models.shape import StepShape
from sim.token_ids import own_token_ids

_NUM_STEPS = 20


class EngineStep(NamedTuple):
    """Seconds that the engine took for a step, beside the backend."""

    shape: StepShape
    engine_s: float


class _NoBackend:
    """Says at once that all tokens are 0, and when it was asked."""

    name = "none"

    def __init__(self, num_kv_blocks: int) -> None:
        self.num_kv_blocks = num_kv_blocks
        self.shape: StepShape | None = None
        self.spent_s = 0.0

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend``."""
        start_s = time.perf_counter()
        self.shape = StepShape.of(batch)
        token_ids = [0] * len(batch.sequences)
        self.spent_s = time.perf_counter() - start_s
        return token_ids

    def close(self) -> None:
        """Nothing is held."""


def measure_engine(config: Config) -> Iterator[EngineStep]:
    """Steps of a few loads, of one prompt and of many. The events of the trace are made and encoded, as when one is
    written. ``config``: with a chosen number of blocks; a bigger pool costs nothing here, and has room."""
    encode = msgspec.json.Encoder().encode
    for num_seqs, prompt_len in ((1, 256), (16, 64), (64, 128), (256, 64), (512, 32)):
        num_seqs = min(num_seqs, config.max_num_seqs)
        num_blocks = num_seqs * -(-(prompt_len + _NUM_STEPS) // config.kvcache_block_size)
        backend = _NoBackend(num_blocks)
        options = replace(config, num_kvcache_blocks=num_blocks, max_model_len=-1, lookahead=False)
        engine = Engine(options, backend, emit=encode)
        params = SamplingParams(max_tokens=_NUM_STEPS, ignore_eos=True)
        requests = [
            Request(request_id=index, prompt_token_ids=own_token_ids(index, prompt_len), sampling_params=params)
            for index in range(num_seqs)
        ]
        for result in engine.run(requests):
            assert backend.shape is not None, "every step of this load computes something"
            yield EngineStep(backend.shape, max(0.0, result.finished_s - result.started_s - backend.spent_s))
