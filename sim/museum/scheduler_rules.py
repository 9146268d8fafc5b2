"""Schedulers that are ours but for one rule. The docstrings say what each does instead, and who met it."""

from __future__ import annotations

from collections import deque

from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence

# ---- who may be resident -----------------------------------------------------------------------------------------


class CountsOnlyThisStep(Scheduler):
    """Compares ``max_num_seqs`` with what this step has scheduled, not with who is resident (nano-vLLM 271)."""

    def _schedule_prefills(self) -> list[Sequence]:
        limit = self.max_num_seqs
        self.max_num_seqs = len(self.running) + limit
        scheduled = super()._schedule_prefills()
        self.max_num_seqs = limit
        return scheduled


class ChecksOnlyThePrompt(Scheduler):
    """Lets in whatever prompt fits the pool, however long its answer may grow (nano-vLLM 274, 277)."""

    def _check(self, seq: Sequence) -> None:
        limit = seq.num_tokens_limit
        seq.num_tokens_limit = seq.num_tokens
        super()._check(seq)
        seq.num_tokens_limit = limit


# ---- prefill -----------------------------------------------------------------------------------------------------


class SubtractsThePrefixTwice(Scheduler):
    """Takes the cached prefix off what a later chunk has to compute; ``num_cached_tokens`` has it in already."""

    def _schedule_chunk(self, seq: Sequence, num_tokens: int, num_remaining_tokens: int) -> None:
        if seq.num_cached_tokens > seq.num_prefix_hit_tokens:  # not the first chunk
            num_missing_tokens = num_tokens + num_remaining_tokens - seq.num_prefix_hit_tokens
            num_tokens = min(num_missing_tokens, self.max_num_batched_tokens)
            num_remaining_tokens = num_missing_tokens - num_tokens
        super()._schedule_chunk(seq, num_tokens, num_remaining_tokens)


# ---- who gives way -----------------------------------------------------------------------------------------------


class WaitsForABlock(Scheduler):
    """Preempts nobody: a sequence that finds no block waits until somebody else has finished."""

    def _schedule_decodes(self) -> list[Sequence]:
        order = list(self.running)
        scheduled = super()._schedule_decodes()
        self.running = deque(order)
        return scheduled

    def _grow(self, seq: Sequence) -> bool:
        if not self.block_manager.can_append(seq):
            self._hold(seq, "no_blocks")
            return False
        return super()._grow(seq)


class PreemptsTheOldest(Scheduler):
    """Takes the victim from the head of ``running``, not from its tail."""

    def _grow(self, seq: Sequence) -> bool:
        while not self.block_manager.can_append(seq) and self.running:
            self.preempt(self.running.popleft(), seq)
        return super()._grow(seq)


class LeavesItInTheQueue(Scheduler):
    """Looks at the head of ``running`` without taking it out, so that the tail may be the sequence itself."""

    def _grow(self, seq: Sequence) -> bool:
        self.running.appendleft(seq)
        while not self.block_manager.can_append(seq):
            self.preempt(self.running.pop(), seq)
        self.block_manager.may_append(seq)
        if seq in self.running:
            self.running.remove(seq)
        return True


class QueuesThePreemptedLast(Scheduler):
    """Puts a preempted sequence at the tail of ``waiting``, behind all who came later (vLLM 41951)."""

    def preempt(self, seq: Sequence, for_seq: Sequence | None = None) -> None:
        """As ours, but to the other end of the queue."""
        super().preempt(seq, for_seq)
        self.waiting.rotate(-1)
