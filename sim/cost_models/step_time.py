"""What every cost model answers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from nanovllm.engine.batch import ScheduledBatch


class StepTime(msgspec.Struct, frozen=True, gc=False):
    """Where the time of one step goes. The parts follow each other; all are in seconds.

    Arithmetic runs while memory is read, so ``matmul_s`` and ``attention_s`` are only what reading does not hide: a
    step in which both are 0 is bound by memory.
    """

    weights_s: float = 0.0
    """Reading the weights, and the activations that the matrix products take and give."""
    matmul_s: float = 0.0
    """Matrix products beyond that."""
    kv_traffic_s: float = 0.0
    """Reading the KV of all tokens that are attended to, and writing that of the new ones."""
    attention_s: float = 0.0
    """Attention's arithmetic beyond that."""
    communication_s: float = 0.0
    """Between the GPUs of a tensor-parallel group."""
    host_s: float = 0.0
    """The program around the kernels: scheduling, preparing inputs, launching, sampling, taking in the tokens. Where it
    works ahead, this passes while the GPUs compute the step before."""
    gap_s: float = 0.0
    """What the GPUs wait for the program between two steps although it works ahead."""
    is_extrapolated: bool = False
    """Whether the step lies outside of what was measured: lines were drawn on."""

    @property
    def parts(self) -> dict[str, float]:
        """The seconds, by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name.endswith("_s")}

    @property
    def device_s(self) -> float:
        """What the GPUs take of it, with the gap before the step."""
        kernels_s = self.weights_s + self.matmul_s + self.kv_traffic_s + self.attention_s
        return kernels_s + self.communication_s + self.gap_s

    @property
    def total_s(self) -> float:
        """The step's duration, if nothing else goes on meanwhile."""
        return self.device_s + self.host_s

    def __add__(self, other: StepTime) -> StepTime:
        """The time of two steps, part by part."""
        return StepTime(
            self.weights_s + other.weights_s,
            self.matmul_s + other.matmul_s,
            self.kv_traffic_s + other.kv_traffic_s,
            self.attention_s + other.attention_s,
            self.communication_s + other.communication_s,
            self.host_s + other.host_s,
            self.gap_s + other.gap_s,
            self.is_extrapolated or other.is_extrapolated,
        )


class CostModel(Protocol):
    """Predicts steps. A pure function of the batch: no clock, no memory of earlier steps."""

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        """How long a step of this batch (of at least one sequence) takes."""
        ...


@runtime_checkable
class RequestCostModel(CostModel, Protocol):
    """One that also knows what the program takes for a request beside its steps."""

    def request_time_s(self, num_prompt_tokens: int) -> float:
        """Seconds from the moment at which a request is handed over to the one at which it is in the queue. Nothing is
        decided meanwhile."""
        ...


@runtime_checkable
class PooledCostModel(CostModel, Protocol):
    """One whose times depend on which blocks of the KV pool sequences share."""

    def for_block_size(self, block_size: int) -> CostModel:
        """The same for a pool with blocks of this many tokens, whatever that was on which it was measured."""
        ...


@runtime_checkable
class MeasuredCostModel(CostModel, Protocol):
    """One whose times were measured, and which knows with what: for anything else they would be others."""

    @property
    def hardware(self) -> str | None:
        """The card, as CUDA calls it; None if nobody told."""
        ...

    @property
    def num_gpus(self) -> int:
        """So many of them shared each layer."""
        ...

    @property
    def dtype(self) -> str | None:
        """The type of the weights and the KV, as ``ModelSpec`` has it; None if nobody told."""
        ...

    @property
    def lookahead(self) -> bool:
        """Whether the engine decides a step while the card computes the one before."""
        ...


@runtime_checkable
class BoundedCostModel(CostModel, Protocol):
    """One that knows how far its measurements reach: beyond, its times are extrapolated."""

    @property
    def measured(self) -> str:
        """How far that is, in words."""
        ...
