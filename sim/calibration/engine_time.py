"""What the engine itself takes for a step on this machine: its loop with a backend that computes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import msgspec

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from sim.cost_models.shape import StepShape
from sim.token_ids import DEFAULT_VOCAB_SIZE, own_token_ids

_NUM_STEPS = 20
_NUM_REQUESTS = 30


class EngineStep(NamedTuple):
    """Seconds that the engine took for a step, beside the backend."""

    shape: StepShape
    engine_s: float


class AddedRequest(NamedTuple):
    """Seconds until the engine has taken a request into its queue."""

    num_prompt_tokens: int
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
    for num_seqs, prompt_len in ((1, 256), (16, 64), (64, 128), (256, 64), (512, 32)):
        num_seqs = min(num_seqs, config.max_num_seqs)
        engine, backend = _new_engine(config, num_seqs, prompt_len)
        for result in engine.run(_requests(num_seqs, prompt_len)):
            assert backend.shape is not None, "every step of this load computes something"
            yield EngineStep(backend.shape, max(0.0, result.finished_s - result.started_s - backend.spent_s))


def measure_requests(config: Config) -> Iterator[AddedRequest]:
    """Requests with prompts of a few lengths, under the same conditions."""
    for prompt_len in (16, 128, 512, 1024, 3000):
        engine, _ = _new_engine(config, _NUM_REQUESTS, prompt_len)
        times_s = []
        for request in _requests(_NUM_REQUESTS, prompt_len):
            start_s = time.perf_counter()
            engine.add(request)
            times_s.append(time.perf_counter() - start_s)
        yield AddedRequest(prompt_len, median(times_s))


def _new_engine(config: Config, num_seqs: int, prompt_len: int) -> tuple[Engine, _NoBackend]:
    num_blocks = num_seqs * -(-(prompt_len + _NUM_STEPS) // config.kvcache_block_size)
    backend = _NoBackend(num_blocks)
    options = replace(config, num_kvcache_blocks=num_blocks, max_model_len=-1, lookahead=False)
    return Engine(options, backend, emit=msgspec.json.Encoder().encode, vocab_size=DEFAULT_VOCAB_SIZE), backend


def _requests(number: int, prompt_len: int) -> list[Request]:
    params = SamplingParams(max_tokens=_NUM_STEPS, ignore_eos=True)
    return [
        Request(request_id=index, prompt_token_ids=own_token_ids(index, prompt_len), sampling_params=params)
        for index in range(number)
    ]
