"""The sequences of rank 0 as the other ranks see them.

Rank 0 remembers what it has told of each sequence, and tells the rest when the sequence is in a batch again; the others
keep a ``Sequence`` of their own for each, as far as computing needs it.
"""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.runner.tensor_parallel.messages import NewSequence, SequenceStep, Step
from nanovllm.sampling_params import SamplingParams


@dataclass(slots=True)
class _Told:
    """What the other ranks know of a sequence."""

    number: int
    num_tokens: int
    """Without one that stands for an unknown token."""
    num_blocks: int = 0
    num_preemptions: int = 0


class Originals:
    """Rank 0's side."""

    def __init__(self) -> None:
        self._told: dict[Sequence, _Told] = {}
        self._num_numbered = 0

    def tell(self, batch: ScheduledBatch) -> Step:
        """The message for a step of ``batch``. Each must reach the other ranks, in this order."""
        ended = [seq for seq in self._told if seq.is_finished]
        numbers = [self._told.pop(seq).number for seq in ended]
        new = [self._introduce(seq) for seq in batch.sequences if seq not in self._told]
        return Step(numbers, new, [self._tell_change(seq) for seq in batch.sequences], batch.is_prefill)

    def _introduce(self, seq: Sequence) -> NewSequence:
        number = self._num_numbered
        self._num_numbered += 1
        num_known_tokens = _num_known_tokens(seq)
        self._told[seq] = _Told(number, num_known_tokens)
        params, token_ids = seq.sampling_params, seq.tokens(0, num_known_tokens)
        draws = params.temperature, params.top_k, params.top_p, params.min_p, params.seed
        return NewSequence(number, repr(seq.request_id), token_ids, *draws)

    def _tell_change(self, seq: Sequence) -> SequenceStep:
        told = self._told[seq]
        if told.num_preemptions != seq.num_preemptions:
            told.num_preemptions, told.num_blocks = seq.num_preemptions, 0
        change = SequenceStep(
            told.number,
            seq.num_cached_tokens,
            seq.num_scheduled_tokens,
            seq.num_preemptions,
            seq.tokens(told.num_tokens, seq.num_tokens),
            seq.block_table[told.num_blocks :],
        )
        told.num_tokens, told.num_blocks = _num_known_tokens(seq), len(seq.block_table)
        return change


class Mirrors:
    """The other ranks' side."""

    def __init__(self) -> None:
        self._sequences: dict[int, Sequence] = {}

    def follow(self, step: Step) -> list[Sequence]:
        """Bring the mirrors up to date. Returns those of the batch."""
        for number in step.ended:
            del self._sequences[number]
        for new in step.new:
            self._sequences[new.number] = _mirror(new)
        return [self._change(self._sequences[change.number], change) for change in step.sequences]

    def _change(self, seq: Sequence, change: SequenceStep) -> Sequence:
        if seq.num_preemptions != change.num_preemptions:
            seq.num_preemptions = change.num_preemptions
            seq.block_table.clear()
        if seq.last_token == UNKNOWN_TOKEN:
            seq.generated.pop()
        seq.generated += change.new_tokens
        seq.num_tokens = seq.num_prompt_tokens + len(seq.generated)
        seq.block_table += change.new_blocks
        seq.num_cached_tokens = change.num_cached_tokens
        seq.num_scheduled_tokens = change.num_scheduled_tokens
        return seq


def _num_known_tokens(seq: Sequence) -> int:
    return seq.num_tokens - (seq.last_token == UNKNOWN_TOKEN)


def _mirror(new: NewSequence) -> Sequence:
    params = SamplingParams(
        temperature=new.temperature, top_k=new.top_k, top_p=new.top_p, min_p=new.min_p, seed=new.seed
    )
    return Sequence(new.prompt_token_ids, params, literal_eval(new.request_id))
