"""The seam between deciding and computing: everything below it is exchangeable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

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


class StepTimes(msgspec.Struct, frozen=True, gc=False):
    """Where the time of a step went, as far as the backend knows, in seconds."""

    host_s: float
    """The program's work in ``execute``, or in ``submit`` and ``result``; not the time it waited for the device."""
    device_s: float
    """From the moment at which the device began with the step to its end."""


@runtime_checkable
class ObservedBackend(Backend, Protocol):
    """A backend that tells more of itself than its tokens."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """For the trace's header: name -> text, number, true or false. The same for equal runs on one machine."""
        ...

    @property
    def step_times(self) -> StepTimes:
        """Of the step whose tokens were returned last."""
        ...


class PendingStep(Protocol):
    """A step on its way."""

    def result(self) -> list[int]:
        """Wait for the step; then as ``Backend.execute``: one sampled token id per sequence, in order.

        Whatever it raises says that the backend is broken: what was decided since counted on this step. After
        that, and after a Ctrl-C, it may be called again.
        """
        ...


@runtime_checkable
class AsynchronousBackend(Backend, Protocol):
    """A backend that can be given a step while it still computes the one before (see ``lookahead``).

    Steps are computed in the order of ``submit``, so each finds the KV that those before it wrote. At most two are on
    their way at once, and their results are asked for in that order too.
    """

    def submit(self, batch: ScheduledBatch) -> PendingStep:
        """Let ``batch`` be computed next, without waiting for the step before it.

        All that is needed of the sequences must be read before ``submit`` returns: they go on changing. Everything
        in them is as for ``execute``, but for one thing: the *newest* token of a sequence is ``UNKNOWN_TOKEN`` if it
        is sampled by the step submitted last, which then had this same ``Sequence`` in its batch. The backend takes
        that token from where it sampled it. Some of these sequences may have ended meanwhile; what is computed of
        them is dropped.

        Raises ``StepError`` if this batch cannot be computed but later ones may, like ``execute``; steps submitted
        before are not affected.
        """
        ...
