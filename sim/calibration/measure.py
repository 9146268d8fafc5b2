"""Planned steps on a backend: sequences as the scheduler would hand them over, and a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from statistics import median
from typing import NamedTuple

from nanovllm.engine.backend import AsynchronousBackend, Backend, ObservedBackend, PendingStep
from nanovllm.engine.batch import MixedBatch, ScheduledBatch
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence, SequenceStatus
from nanovllm.sampling_params import SamplingParams
from sim.calibration.plan import NUM_AHEAD, NUM_ALONE, NUM_REPETITIONS, NUM_WARM_UPS, PlannedStep
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
    """Compute the planned steps one after the other. Whatever was in the pool is overwritten.

    The device's time is taken with the next step submitted before the one that it computes ends, as the engine will
    have it, if the backend can do that; the host's is what a step takes beyond that when it is alone.
    """
    numbers = count()
    for planned in plan:
        repetitions = _Repetitions(planned, block_size, vocab_size, numbers, shared_block_size)
        alone = [_compute(backend, batch, clock) for batch in repetitions.batches(NUM_ALONE)]
        taken_s = median(taken_s for taken_s, _ in alone[NUM_WARM_UPS:])
        device_times_s = [device_s for _, device_s in alone]
        if isinstance(backend, AsynchronousBackend):
            ahead = _device_times_ahead(backend, repetitions.batches(NUM_AHEAD, newest_token=UNKNOWN_TOKEN))
            device_times_s = list(ahead) or device_times_s
        measured_s = device_times_s[NUM_WARM_UPS:]
        shapes = repetitions.shapes[-len(measured_s) :]
        device_s = median(measured_s)
        yield MeasuredStep(shapes[len(shapes) // 2], device_s, max(0.0, taken_s - device_s))


def _compute(backend: Backend, batch: ScheduledBatch, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds until the tokens of a step are there, and of these, seconds on the device."""
    start_s = clock()
    backend.execute(batch)
    taken_s = clock() - start_s
    return taken_s, min(taken_s, backend.step_times.device_s) if isinstance(backend, ObservedBackend) else taken_s


def _device_times_ahead(backend: AsynchronousBackend, batches: Iterable[ScheduledBatch]) -> Iterator[float]:
    """Seconds on the device for each step, each submitted while the one before is computed. None from a backend that
    does not tell them."""
    if not isinstance(backend, ObservedBackend):
        return
    on_their_way: list[PendingStep] = []
    for batch in batches:
        on_their_way.append(backend.submit(batch))
        if len(on_their_way) == 2:
            on_their_way.pop(0).result()
            yield backend.step_times.device_s
    on_their_way.pop().result()
    yield backend.step_times.device_s


class _Repetitions:
    """A planned step again and again: its decodes grow by a token each time, its chunks are new ones."""

    def __init__(
        self,
        planned: PlannedStep,
        block_size: int,
        vocab_size: int,
        numbers: Iterator[int],
        shared_block_size: int | None,
    ) -> None:
        self.shapes: list[StepShape] = []
        """Of all so far."""
        self._planned = planned
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._numbers = numbers
        self._shared_block_size = shared_block_size
        self._decodes = _decodes(planned, block_size, vocab_size, numbers)
        self._blocks = [_reserve(seq, block_size) for seq in self._decodes]
        self._next_block = max((block + 1 for blocks in self._blocks for block in blocks), default=0)

    def batches(self, number: int, newest_token: int = 0) -> Iterator[ScheduledBatch]:
        """So many more. ``newest_token``: what the decodes get from the one before."""
        for _ in range(number):
            if self.shapes:
                for seq, blocks in zip(self._decodes, self._blocks, strict=True):
                    _take_in(seq, newest_token, blocks, self._block_size)
            chunks = _chunks(self._planned, self._block_size, self._vocab_size, self._numbers, self._next_block)
            kind = MixedBatch if self._decodes and chunks else ScheduledBatch
            batch = kind([*self._decodes, *chunks], bool(chunks))
            self.shapes.append(StepShape.of(batch, self._shared_block_size))
            yield batch


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
