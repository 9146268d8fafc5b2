"""Runs to look at in a page: made by the real engine on a backend that computes nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, RequestId, TraceStarted
from nanovllm.trace.files.completeness import why_unfinished
from nanovllm.trace.jsonl import Trace
from nanovllm.trace.recorder import Recorder


class ZeroBackend:
    """Every sampled token is a 0; a step takes a microsecond a token, and one more."""

    name = "zero"

    def __init__(self, num_kv_blocks: int, clock: VirtualClock) -> None:
        self.num_kv_blocks = num_kv_blocks
        self._clock = clock

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``."""
        self._clock.advance(1e-6 * (1 + batch.num_tokens))
        return [0] * len(batch.sequences)

    def close(self) -> None:
        """See ``Backend.close``."""


def request(request_id: RequestId, prompt: Sequence[int], max_tokens: int, arrival_step: int = 0) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        arrival_step=arrival_step,
    )


def run(config: Config, requests: Sequence[Request], max_steps: int | None = None) -> list[AnyEvent]:
    """The events of a run, which is left alone after ``max_steps`` if it is longer."""
    recorder, clock = Recorder(), VirtualClock()
    engine = Engine(config, ZeroBackend(config.num_kvcache_blocks, clock), clock=clock, emit=recorder.emit)
    for result in engine.run(requests):
        if result.step + 1 == max_steps:
            break
    return recorder.events


def as_trace(events: list[AnyEvent], name: str = "run.jsonl") -> Trace:
    """Events as if they had been read from a file."""
    header, missing = events[0], why_unfinished(events)
    assert isinstance(header, TraceStarted)
    return Trace(name, header, events, missing is None, None if missing is None else f"{name}: {missing}")


def tight_config(**options: object) -> Config:
    """Few slots, few blocks, a small budget: chunks, preemptions, evictions and hits in a few steps."""
    usual: dict[str, object] = {
        "kvcache_block_size": 4,
        "num_kvcache_blocks": 16,
        "max_num_batched_tokens": 16,
        "max_num_seqs": 3,
    }
    return Config.from_options(**{**usual, **options})


def tight_requests(num_requests: int = 12, seed: int = 5) -> list[Request]:
    """Requests for ``tight_config``; every other one begins with the same two blocks."""
    rng = random.Random(seed)
    requests, step = [], 0
    for index in range(num_requests):
        own = [1000 * (index + 1) + i for i in range(rng.randint(1, 22))]
        prompt = [*range(1, 9), *own] if index % 2 else own
        requests.append(request(f"r{index}", prompt, rng.randint(3, 14), step))
        step += rng.randint(0, 4)
    return requests


def tight_run(**options: object) -> list[AnyEvent]:
    """A small run in which everything happens."""
    return run(tight_config(**options), tight_requests())
