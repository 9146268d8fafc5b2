"""Planned steps on a backend: sequences as the scheduler would hand them over, and a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from statistics import median
from typing import NamedTuple

from nanovllm.engine.backend import Backend, ObservedBackend
from nanovllm.engine.batch import MixedBatch, ScheduledBatch
from nanovllm.engine.sequence import Sequence, SequenceStatus
from nanovllm.sampling_params import SamplingParams
from sim.calibration.plan import NUM_REPETITIONS, NUM_WARM_UPS, PlannedStep
from sim.cost_models.shape import StepShape
from sim.token_ids import own_token_ids

_ENDLESS = SamplingParams(max_tokens=10**6, ignore_eos=True)


class MeasuredStep(NamedTuple):
    """What a step took, in seconds: the median of its repetitions."""

    shape: StepShape
    device_s: float
    host_s: float
    """The rest of the time until the tokens were there: the device waited."""


def measure_steps(
    backend: Backend,
    plan: Iterable[PlannedStep],
    block_size: int,
    *,
    vocab_size: int,
    shared_block_size: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[MeasuredStep]:
    """Compute the planned steps one after the other. Whatever was in the pool is overwritten."""
    numbers = count()
    for planned in plan:
        decodes = _decodes(planned, block_size, vocab_size, numbers)
        spare = [_reserve(seq, block_size) for seq in decodes]
        next_block = max((block + 1 for blocks in spare for block in blocks), default=0)
        shapes, device_s, host_s = [], [], []
        for _ in range(NUM_REPETITIONS):
            chunks = _chunks(planned, block_size, vocab_size, numbers, next_block)
            kind = MixedBatch if decodes and chunks else ScheduledBatch
            batch = kind([*decodes, *chunks], bool(chunks))
            shapes.append(StepShape.of(batch, shared_block_size))
            start_s = clock()
            token_ids = backend.execute(batch)
            taken_s = clock() - start_s
            on_device_s = backend.step_times.device_s if isinstance(backend, ObservedBackend) else taken_s
            device_s.append(min(on_device_s, taken_s))
            host_s.append(taken_s - device_s[-1])
            for seq, token_id, blocks in zip(
                decodes, token_ids, spare, strict=False
            ):  # nobody needs the chunks' tokens
                _take_in(seq, token_id, blocks, block_size)
        middle = (NUM_REPETITIONS + NUM_WARM_UPS) // 2
        yield MeasuredStep(shapes[middle], median(device_s[NUM_WARM_UPS:]), median(host_s[NUM_WARM_UPS:]))


def _decodes(planned: PlannedStep, block_size: int, vocab_size: int, numbers: Iterator[int]) -> list[Sequence]:
    """Sequences that run, each with the blocks for all repetitions."""
    num_shared = planned.num_shared_tokens // block_size
    shared, next_block = list(range(num_shared)), num_shared
    sequences = []
    for num_cached in planned.decodes:
        seq = _sequence(num_cached, vocab_size, next(numbers))
        seq.append_token(0)
        seq.status = SequenceStatus.RUNNING
        seq.num_cached_tokens, seq.num_scheduled_tokens = num_cached, 1
        num_own = -(-(num_cached + 1 + NUM_REPETITIONS) // block_size) - num_shared
        seq.block_table = [*shared, *range(next_block, next_block + num_own)]
        next_block += num_own
        sequences.append(seq)
    return sequences


def _chunks(
    planned: PlannedStep, block_size: int, vocab_size: int, numbers: Iterator[int], next_block: int
) -> list[Sequence]:
    sequences = []
    for num_cached, num_tokens in planned.chunks:
        seq = _sequence(num_cached + num_tokens, vocab_size, next(numbers))
        seq.num_cached_tokens, seq.num_scheduled_tokens = num_cached, num_tokens
        num_blocks = -(-(num_cached + num_tokens) // block_size)
        seq.block_table = list(range(next_block, next_block + num_blocks))
        next_block += num_blocks
        sequences.append(seq)
    return sequences


def _sequence(num_tokens: int, vocab_size: int, number: int) -> Sequence:
    return Sequence(own_token_ids(number, num_tokens, vocab_size=vocab_size), _ENDLESS, number)


def _reserve(seq: Sequence, block_size: int) -> list[int]:
    """All blocks of the sequence; it keeps those that it needs by now."""
    blocks = seq.block_table
    seq.block_table = blocks[: -(-seq.num_tokens // block_size)]
    return blocks


def _take_in(seq: Sequence, token_id: int, blocks: list[int], block_size: int) -> None:
    """As the scheduler does between two steps."""
    seq.num_cached_tokens += 1
    seq.append_token(token_id)
    if seq.num_tokens > len(seq.block_table) * block_size:
        seq.block_table.append(blocks[len(seq.block_table)])
