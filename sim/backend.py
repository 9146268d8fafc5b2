"""The modelled GPU: it computes nothing, says which tokens come out, and lets the time pass that it would take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nanovllm.engine.backend import StepTimes
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.sequence import Sequence
from sim.cost_models.step_time import CostModel, StepTime
from sim.outputs import Outputs

_DROPPED = 0
"""Stands for what is computed of a sequence after its end."""


class SimulatedBackend:
    """A ``Backend`` whose steps take virtual time only.

    The engine must run on the same ``clock``. Nothing else moves it but the jump to the next arrival: how long the
    program itself takes never shows.

    It can be given steps ahead of time. Then ``host_s`` of a step passes when it is submitted, while the GPU computes
    the step before, and the GPU begins with it when both are through.
    """

    name = "simulated"

    def __init__(
        self,
        clock: VirtualClock,
        cost_model: CostModel,
        outputs: Outputs,
        num_kv_blocks: int,
        *,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """``facts``: what the trace's header shall tell of the model."""
        self.num_kv_blocks = num_kv_blocks
        self.facts: Mapping[str, Any] = {} if facts is None else facts
        """See ``ObservedBackend``."""
        self.step_times = StepTimes(0.0, 0.0)
        """See ``ObservedBackend``."""
        self.time_spent = StepTime()
        """Of all steps so far, part by part, whether they passed one after the other or side by side."""
        self.num_extrapolated_steps = 0
        """Of them, those that lie outside of what the cost model was measured on."""
        self._clock = clock
        self._cost_model = cost_model
        self._outputs = outputs
        self._answers: dict[Sequence, list[int]] = {}
        self._max_answers = 64
        self._gpu_is_free_at_s = 0.0

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend``. The virtual time after it is the one at which the step's tokens are there."""
        step_time = self._cost_model.step_time(batch)
        self.time_spent += step_time
        self.num_extrapolated_steps += step_time.is_extrapolated
        self.step_times = times = StepTimes(step_time.host_s, step_time.device_s)
        self._clock.advance(times.device_s + times.host_s)
        return self._sample(batch)

    def submit(self, batch: ScheduledBatch) -> SimulatedStep:
        """See ``AsynchronousBackend``. The virtual time after it is the one at which the program has submitted."""
        step_time = self._cost_model.step_time(batch)
        self.time_spent += step_time
        self.num_extrapolated_steps += step_time.is_extrapolated
        times = StepTimes(step_time.host_s, step_time.device_s)
        self._clock.advance(times.host_s)
        self._gpu_is_free_at_s = max(self._gpu_is_free_at_s, self._clock.now()) + times.device_s
        return SimulatedStep(self, self._sample(batch), times, self._gpu_is_free_at_s)

    def wait_for(self, step: SimulatedStep) -> None:
        """Let the time pass until a step is computed."""
        self._clock.wait_until(step.end_s)
        self.step_times = step.times

    def close(self) -> None:
        """There is nothing to give back."""

    def _sample(self, batch: ScheduledBatch) -> list[int]:
        if batch.is_prefill:  # every sequence begins with one
            self._look_up_answers(batch.sequences)
        answers = self._answers
        try:
            return [answers[seq][len(seq.generated)] for seq in batch.sequences]
        except IndexError:  # one has ended, and whoever submitted the step does not know it yet
            places = [(answers[seq], len(seq.generated)) for seq in batch.sequences]
            return [answer[place] if place < len(answer) else _DROPPED for answer, place in places]

    def _look_up_answers(self, sequences: list[Sequence]) -> None:
        for seq in sequences:
            if seq not in self._answers:
                self._answers[seq] = self._outputs.token_ids(seq)
        if len(self._answers) > self._max_answers:
            self._answers = {seq: answer for seq, answer in self._answers.items() if not seq.is_finished}
            self._max_answers = 2 * len(self._answers) + 64


class SimulatedStep:
    """A step on its way to the modelled GPU, which has computed it at ``end_s``."""

    __slots__ = ("_backend", "_token_ids", "end_s", "times")

    def __init__(self, backend: SimulatedBackend, token_ids: list[int], times: StepTimes, end_s: float) -> None:
        self._backend = backend
        self._token_ids = token_ids
        self.times = times
        self.end_s = end_s

    def result(self) -> list[int]:
        """See ``PendingStep``."""
        self._backend.wait_for(self)
        return self._token_ids
