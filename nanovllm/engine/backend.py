"""The seam between deciding and computing: everything below it is exchangeable."""

from __future__ import annotations

from typing import Protocol

from nanovllm.engine.batch import ScheduledBatch


class Backend(Protocol):
    """Computes steps. The torch runner, the simulator and the tests' fake all fit it."""

    @property
    def name(self) -> str:
        """What the trace's header calls it: ``cpu``, ``cuda``, ``simulated`` ..."""
        ...

    @property
    def num_kv_blocks(self) -> int:
        """Blocks of the KV pool it has memory for."""
        ...

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """Compute the scheduled tokens of each sequence and sample one token id per sequence, in order.

        The sampled token of a sequence whose prompt is not complete after this step is ignored. Raises
        ``StepError`` if this batch cannot be computed but later ones may; the engine then fails its requests.
        """
        ...

    def close(self) -> None:
        """Give back memory, processes and files. Calling it again does nothing."""
        ...
