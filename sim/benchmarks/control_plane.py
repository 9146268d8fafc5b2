"""The control plane alone: scheduler and block manager, no backend, no clock.

The load is that of nano-vLLM's own benchmark: 256 sequences with prompt and output lengths uniform in 100 to 1,024
tokens, block size 256, a budget of 16,384 tokens.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from nanovllm.config import Config
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import Emit


class ControlPlaneResult(NamedTuple):
    """Time spent in ``schedule()`` and ``postprocess()``, in total and in decode steps only."""

    total_s: float
    decode_s: float
    num_decode_steps: int
    num_decode_tokens: int

    @property
    def decode_tokens_per_s(self) -> float:
        """Decode tokens scheduled and taken in per second."""
        return self.num_decode_tokens / self.decode_s

    @property
    def decode_step_s(self) -> float:
        """Mean time of a decode step."""
        return self.decode_s / self.num_decode_steps


def random_sequences(count: int, low: int, high: int, seed: int = 0) -> list[Sequence]:
    """Sequences with prompt and output lengths uniform in ``[low, high]``."""
    rng = random.Random(seed)
    return [
        Sequence(
            rng.choices(range(10_000), k=rng.randint(low, high)),
            SamplingParams(max_tokens=rng.randint(low, high), ignore_eos=True),
        )
        for _ in range(count)
    ]


def run_control_plane(sequences: list[Sequence], config: Config, emit: Emit | None = None) -> ControlPlaneResult:
    """Run the sequences to their end, each step's sampled tokens given."""
    scheduler = Scheduler(config, emit)
    for seq in sequences:
        scheduler.add(seq)
    tokens = list(range(config.max_num_seqs))
    total_s = decode_s = 0.0
    num_decode_steps = num_decode_tokens = 0
    while not scheduler.is_finished():
        start_s = time.perf_counter()
        batch = scheduler.schedule()
        scheduler.postprocess(batch.sequences, tokens[: len(batch.sequences)], batch.is_prefill)
        step_s = time.perf_counter() - start_s
        total_s += step_s
        if not batch.is_prefill:
            decode_s += step_s
            num_decode_steps += 1
            num_decode_tokens += len(batch.sequences)
    return ControlPlaneResult(total_s, decode_s, num_decode_steps, num_decode_tokens)


def bench256(emit: Emit | None = None) -> ControlPlaneResult:
    """One run of the load described above."""
    config = Config(num_kvcache_blocks=4_096, kvcache_block_size=256, max_num_batched_tokens=16_384)
    return run_control_plane(random_sequences(256, 100, 1_024), config, emit)


def time_per_request(num_requests: int) -> float:
    """Seconds of control plane for each of ``num_requests`` short requests that wait at once, a few dozen of which
    fit the pool: constant if the cost grows linearly."""
    config = Config(num_kvcache_blocks=512, kvcache_block_size=16, max_num_batched_tokens=2_048, max_num_seqs=64)
    return run_control_plane(random_sequences(num_requests, 8, 32), config).total_s / num_requests
