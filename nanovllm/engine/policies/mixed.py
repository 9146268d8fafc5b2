"""Decodes and prompts in one step: whoever runs gets a token, and the rest of the budget goes to prompts.

A request runs from its first chunk on, so ``running`` holds those that decode and those whose prompts are on their way,
in the order of their admission. A step

1. decodes: all that can, in that order. Who needs a block preempts from the tail;
2. continues prompts: each by what is left of the budget, or by its cap. Blocks are taken chunk by chunk. Here too one
   preempts from the tail, but where the tail is in this step already, one waits for the next, whoever stands between;
3. admits from ``waiting``, unless somebody was preempted: room that was made is for those who run.

This is what vLLM and Sarathi-Serve (https://arxiv.org/abs/2403.02310) call chunked prefill.
"""

from __future__ import annotations

from collections.abc import Iterable

from nanovllm.config import Config
from nanovllm.engine.batch import MixedBatch, ScheduledBatch
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence, SequenceStatus
from nanovllm.trace.events import Admitted, DecodeScheduled, Emit


class MixedScheduler(Scheduler):
    """The policy ``mixed``. Another one over whole steps is a subclass that says who comes first: ``_in_order`` among
    those who run, ``_next_waiting`` among the others."""

    def __init__(self, config: Config, emit: Emit | None = None) -> None:
        super().__init__(config, emit)
        self._prefilling: dict[Sequence, None] = {}
        """Those in ``running`` whose prompt is not scheduled to its end, in order of admission."""
        self._chunk_limit = config.max_prefill_tokens_per_request
        self._admits_by_chunk = config.admit_by == "chunk"

    # ---- decisions -------------------------------------------------------------------------------------------

    def schedule(self) -> ScheduledBatch:
        """See ``Scheduler.schedule``."""
        order = self._in_order(self.running)
        num_before = len(order)
        decodes = self._decode(order)
        budget = self.max_num_batched_tokens - len(decodes)
        chunks, budget = self._continue_prompts(order, budget) if self._prefilling else ([], budget)
        if self.waiting and len(order) == num_before:  # nobody was preempted
            chunks += self._admit_waiting(budget)
        if not chunks:
            return ScheduledBatch(decodes, False)
        return MixedBatch(decodes + chunks, True) if decodes else ScheduledBatch(chunks, True)

    def _in_order(self, seqs: Iterable[Sequence]) -> list[Sequence]:
        """Whoever comes first may take blocks from whoever comes last."""
        return list(seqs)

    def _next_waiting(self) -> Sequence:
        """The one to be admitted next; ``waiting`` is not empty."""
        return self.waiting[0]

    def _decode(self, order: list[Sequence]) -> list[Sequence]:
        """A token for each whose prompt is complete. Takes the preempted off the end of ``order``."""
        block_size = self.block_manager.block_size
        # As BlockManager.needs_block: here a call for each sequence would show.
        growing = [seq for seq in order if seq.num_tokens > len(seq.block_table) * block_size]
        for seq in growing:
            if seq.status is not SequenceStatus.RUNNING or seq in self._prefilling:
                continue  # preempted for one before it, or not through with its prompt
            if self._make_room(seq, 1, order):
                self.block_manager.may_append(seq)
            else:
                self._preempt_last(order, seq)  # itself: nobody is left behind it
        prefilling = self._prefilling
        scheduled = [seq for seq in order if seq not in prefilling] if prefilling else order.copy()
        for seq in scheduled:
            seq.num_scheduled_tokens = 1
        if scheduled and self._emit is not None:
            self._emit(DecodeScheduled([seq.request_id for seq in scheduled]))
        return scheduled

    def _continue_prompts(self, order: list[Sequence], budget: int) -> tuple[list[Sequence], int]:
        """The next chunk of each prompt that has been begun; and the budget that is left."""
        scheduled: list[Sequence] = []
        for seq in self._in_order(self._prefilling):
            if seq.status is not SequenceStatus.RUNNING:
                continue  # preempted for one before it
            if budget <= 0:
                self._hold(seq, "no_budget")
                break
            num_missing_tokens = seq.num_tokens - seq.num_cached_tokens
            num_tokens = min(num_missing_tokens, budget, self._cap())
            num_blocks = self.block_manager.num_missing_blocks(seq, seq.num_cached_tokens + num_tokens)
            if not self._make_room(seq, num_blocks, order):
                if order[-1] is seq:
                    self._preempt_last(order, seq)
                else:
                    self._hold(seq, "no_blocks")
                continue
            self.block_manager.extend(seq, seq.num_cached_tokens + num_tokens)
            self._schedule_chunk(seq, num_tokens, num_missing_tokens - num_tokens)
            scheduled.append(seq)
            budget -= num_tokens
        return scheduled, budget

    def _admit_waiting(self, budget: int) -> list[Sequence]:
        scheduled: list[Sequence] = []
        num_promised_blocks = self._num_promised_blocks()
        while self.waiting:
            seq = self._next_waiting()
            if len(self.running) >= self.max_num_seqs:
                self._hold(seq, "no_slot")
                break
            if budget <= 0:
                self._hold(seq, "no_budget")
                break
            most = min(budget, self._cap())
            num_reserved_blocks = self._num_reserved_blocks(seq) + num_promised_blocks
            by_chunk = most if self._admits_by_chunk else None
            num_cached_blocks = self.block_manager.can_allocate(seq, num_reserved_blocks, by_chunk)
            if num_cached_blocks is None:
                self._hold(seq, "no_blocks")
                break
            self.block_manager.allocate(seq, num_cached_blocks, most)
            self._admit(seq)
            num_missing_tokens = seq.num_tokens - seq.num_cached_tokens
            num_tokens = min(num_missing_tokens, most)
            self._schedule_chunk(seq, num_tokens, num_missing_tokens - num_tokens)
            scheduled.append(seq)
            budget -= num_tokens
            if not self._admits_by_chunk:
                num_promised_blocks += self.block_manager.num_missing_blocks(seq, seq.num_tokens)
        return scheduled

    def _num_promised_blocks(self) -> int:
        """What prompts that were admitted as a whole still need; nothing if they are admitted by their next chunk."""
        if self._admits_by_chunk:
            return 0
        return sum(self.block_manager.num_missing_blocks(seq, seq.num_tokens) for seq in self._prefilling)

    def _cap(self) -> int:
        """The most tokens of one prompt in this step. A request that is alone keeps nobody waiting."""
        if self._chunk_limit == -1 or len(self.sequences) == 1:
            return self.max_num_batched_tokens
        return self._chunk_limit

    # ---- transitions -----------------------------------------------------------------------------------------

    def _admit(self, seq: Sequence) -> None:
        """Let a request run that has its first blocks."""
        seq.status = SequenceStatus.RUNNING
        self.waiting.remove(seq)
        self.running.append(seq)
        self._prefilling[seq] = None
        if self._emit is not None:
            self._emit(Admitted(seq.request_id))

    def _schedule_chunk(self, seq: Sequence, num_tokens: int, num_remaining_tokens: int) -> None:
        super()._schedule_chunk(seq, num_tokens, num_remaining_tokens)
        if num_remaining_tokens == 0:
            del self._prefilling[seq]

    def _make_room(self, seq: Sequence, num_blocks: int, order: list[Sequence]) -> bool:
        """Preempt from the end of ``order`` for ``seq`` until so many blocks are free. False: the last one left is in
        this step already, or it is ``seq``."""
        while self.block_manager.num_free_blocks < num_blocks:
            if order[-1] is seq or order[-1].num_scheduled_tokens:
                return False
            self._preempt_last(order, seq)
        return True

    def _preempt_last(self, order: list[Sequence], for_seq: Sequence) -> None:
        seq = order.pop()
        self.running.remove(seq)
        self._prefilling.pop(seq, None)
        self.preempt(seq, for_seq)

    def finish(self, seq: Sequence, reason: str, time_s: float = 0.0) -> None:
        """See ``Scheduler.finish``."""
        self._prefilling.pop(seq, None)
        super().finish(seq, reason, time_s)
