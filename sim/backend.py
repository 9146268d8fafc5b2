"""The modelled GPU: it computes nothing, says which tokens come out, and lets the time pass that it would take."""

from __future__ import annotations

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.sequence import Sequence
from sim.cost_models.step_time import CostModel, StepTime
from sim.outputs import Outputs


class SimulatedBackend:
    """A ``Backend`` whose steps take virtual time only.

    The engine must run on the same ``clock``. Nothing else moves it but the jump to the next arrival: how long the
    program itself takes never shows.
    """

    name = "simulated"

    def __init__(self, clock: VirtualClock, cost_model: CostModel, outputs: Outputs, num_kv_blocks: int) -> None:
        self.num_kv_blocks = num_kv_blocks
        self.time_spent = StepTime()
        """Of all steps so far, part by part."""
        self._clock = clock
        self._cost_model = cost_model
        self._outputs = outputs
        self._answers: dict[Sequence, list[int]] = {}
        self._max_answers = 64

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend``. The virtual time after it is the one at which the step's tokens are there."""
        step_time = self._cost_model.step_time(batch)
        self.time_spent += step_time
        self._clock.advance(step_time.total_s)
        if batch.is_prefill:  # every sequence begins with one
            self._look_up_answers(batch.sequences)
        answers = self._answers
        return [answers[seq][seq.num_tokens - seq.num_prompt_tokens] for seq in batch.sequences]

    def _look_up_answers(self, sequences: list[Sequence]) -> None:
        for seq in sequences:
            if seq not in self._answers:
                self._answers[seq] = self._outputs.token_ids(seq)
        if len(self._answers) > self._max_answers:
            self._answers = {seq: answer for seq, answer in self._answers.items() if not seq.is_finished}
            self._max_answers = 2 * len(self._answers) + 64

    def close(self) -> None:
        """There is nothing to give back."""
