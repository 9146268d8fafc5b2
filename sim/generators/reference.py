"""Four loads that engines are compared on, defined to the token: the same prompts in every engine and in the simulator.

``bench256`` is nano-vLLM's own benchmark. Prompts of two repetitions differ, so that none is answered from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sim.workload import WorkloadRequest

_NUM_IDS = 10_000
_TEMPERATURE = 0.6


def bench256(repetition: int = 0) -> list[WorkloadRequest]:
    """256 requests, prompt and output lengths uniform in 100 to 1,024 tokens."""
    rng = Random(0)
    prompts = [[rng.randint(0, _NUM_IDS) for _ in range(rng.randint(100, 1024))] for _ in range(256)]
    return _requests(prompts, [rng.randint(100, 1024) for _ in range(256)], repetition)


def bs1(repetition: int = 0) -> list[WorkloadRequest]:
    """One request: 128 tokens in, 256 out."""
    return _batch(1, 128, 256, repetition)


def bs16(repetition: int = 0) -> list[WorkloadRequest]:
    """16 requests: 512 tokens in, 256 out."""
    return _batch(16, 512, 256, repetition)


def shared(repetition: int = 0) -> list[WorkloadRequest]:
    """256 requests with one prefix of 2,048 tokens, each with 64 of its own, 128 out."""
    rng = Random(2)
    prefix = [rng.randint(0, _NUM_IDS) for _ in range(2048)]
    prompts = [prefix + [rng.randint(0, _NUM_IDS) for _ in range(64)] for _ in range(256)]
    return _requests(prompts, [128] * 256, repetition)


REFERENCE_LOADS: dict[str, Callable[[int], list[WorkloadRequest]]] = {
    "bench256": bench256,
    "bs1": bs1,
    "bs16": bs16,
    "shared": shared,
}
"""By name; called with the number of the repetition."""


def _batch(num_requests: int, prompt_len: int, output_len: int, repetition: int) -> list[WorkloadRequest]:
    rng = Random(1)
    prompts = [[rng.randint(0, _NUM_IDS) for _ in range(prompt_len)] for _ in range(num_requests)]
    return _requests(prompts, [output_len] * num_requests, repetition)


def _requests(prompts: list[list[int]], output_lens: list[int], repetition: int) -> list[WorkloadRequest]:
    shift = 13 * repetition
    return [
        WorkloadRequest(
            id=f"{repetition}.{index}",
            prompt=[(token + shift) % _NUM_IDS for token in prompt],
            max_tokens=output_len,
            temperature=_TEMPERATURE,
            ignore_eos=True,
        )
        for index, (prompt, output_len) in enumerate(zip(prompts, output_lens, strict=True))
    ]
