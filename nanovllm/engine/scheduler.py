"""Who computes what in the next step: the prefill-first policy, from top to bottom.

A request waits in ``waiting`` until its whole prompt is scheduled, then stands in ``running`` until it ends. A
step is one ``schedule()``, one forward pass and one ``postprocess()``. Prompts go first: while a waiting request
can be prefilled, the step is a prefill step; otherwise every running request decodes one token. When a running
request needs a KV block and none is free, the one at the tail of ``running`` is preempted: it gives up its
blocks and recomputes later.

``schedule()`` decides; the small methods below it each change the state in one way and emit one event. Another
policy is a subclass with its own ``schedule()`` on the same methods. No clock and no backend in here.
"""

from __future__ import annotations

from collections import deque

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence, SequenceStatus
from nanovllm.errors import ConfigError, RequestError, shown
from nanovllm.trace.events import (
    ChunkScheduled,
    DecodeScheduled,
    Emit,
    Held,
    Preempted,
    RequestAdded,
    RequestFinished,
    RequestId,
    TokensAppended,
)


class Scheduler:
    """Queues, KV pool and the decisions over them. ``emit`` receives each event as it happens, if given."""

    def __init__(self, config: Config, emit: Emit | None = None) -> None:
        if config.num_kvcache_blocks < 1:
            raise ConfigError("num_kvcache_blocks", config.num_kvcache_blocks, "a scheduler needs at least 1 block")
        self.config = config
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.eos_token_ids = config.eos_token_ids
        self.block_manager = BlockManager(
            config.num_kvcache_blocks,
            config.kvcache_block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            emit=emit,
        )
        self.waiting: deque[Sequence] = deque()
        self.running: deque[Sequence] = deque()
        self.sequences: dict[RequestId, Sequence] = {}
        self._num_numbered = 0
        self._emit = emit

    def is_finished(self) -> bool:
        """Whether no request is left."""
        return not self.waiting and not self.running

    # ---- decisions -------------------------------------------------------------------------------------------

    def schedule(self) -> ScheduledBatch:
        """Choose the sequences of the next step and give each its ``num_scheduled_tokens`` and blocks."""
        prefills = self._schedule_prefills()
        if prefills:
            return ScheduledBatch(prefills, True)
        return ScheduledBatch(self._schedule_decodes(), False)

    def _schedule_prefills(self) -> list[Sequence]:
        scheduled: list[Sequence] = []
        budget = self.max_num_batched_tokens
        while self.waiting:
            seq = self.waiting[0]
            if len(self.running) >= self.max_num_seqs:
                self._hold(seq, "no_slot")
                break
            if budget == 0:
                self._hold(seq, "no_budget")
                break
            # Either way the same quantity: the tokens whose KV is still missing. Before allocation only the
            # look-up knows the prefix; after it num_cached_tokens includes the prefix and all chunks.
            num_cached_blocks = 0
            if not seq.block_table:
                reusable = self.block_manager.can_allocate(seq, self._num_reserved_blocks(seq))
                if reusable is None:
                    self._hold(seq, "no_blocks")
                    break
                num_cached_blocks = reusable
                num_missing_tokens = seq.num_tokens - num_cached_blocks * self.block_manager.block_size
            else:
                num_missing_tokens = seq.num_tokens - seq.num_cached_tokens
            if num_missing_tokens > budget and scheduled:
                self._hold(seq, "chunk_not_first")
                break
            if not seq.block_table:
                self.block_manager.allocate(seq, num_cached_blocks)
            num_tokens = min(num_missing_tokens, budget)
            self._schedule_chunk(seq, num_tokens, num_missing_tokens - num_tokens)
            scheduled.append(seq)
            budget -= num_tokens
            if num_tokens < num_missing_tokens:
                break  # it is still the head of waiting, and has its share of this step
        return scheduled

    def _num_reserved_blocks(self, seq: Sequence) -> int:
        """Blocks that admitting ``seq`` must leave free: the watermark, for new requests while others run."""
        return self.config.watermark_blocks if self.running and not seq.num_preemptions else 0

    def _schedule_decodes(self) -> list[Sequence]:
        scheduled: list[Sequence] = []
        running, block_size = self.running, self.block_manager.block_size
        while running and len(scheduled) < self.max_num_seqs:
            # In hand, no longer in the queue: preempting the tail cannot hit the sequence itself.
            seq = running.popleft()
            # As BlockManager.needs_block: here a call for each sequence would show.
            needs_block = seq.num_tokens > len(seq.block_table) * block_size
            if needs_block and not self._grow(seq):
                continue
            seq.num_scheduled_tokens = 1
            scheduled.append(seq)
        running.extendleft(reversed(scheduled))
        if scheduled and self._emit is not None:
            self._emit(DecodeScheduled([seq.request_id for seq in scheduled]))
        return scheduled

    # ---- transitions -----------------------------------------------------------------------------------------

    def add(self, seq: Sequence, time_s: float = 0.0, arrival_s: float | None = None) -> None:
        """Put a request at the tail of ``waiting``. Raises ``RequestError`` if it can never finish.

        ``time_s`` is only written down: now, on the engine's clock; ``arrival_s`` is when the request came.
        """
        if seq.request_id is None:
            seq.request_id = self._next_request_id()
        self._check(seq)
        if not seq.sampling_params.ignore_eos:
            seq.end_token_ids |= self.eos_token_ids
        self.sequences[seq.request_id] = seq
        self.waiting.append(seq)
        if self._emit is not None:
            arrival_s = time_s if arrival_s is None else arrival_s
            lengths = seq.num_prompt_tokens, seq.max_tokens
            self._emit(RequestAdded(seq.request_id, time_s, arrival_s, *lengths, seq.priority))

    def _next_request_id(self) -> int:
        while self._num_numbered in self.sequences:
            self._num_numbered += 1
        self._num_numbered += 1
        return self._num_numbered - 1

    def _check(self, seq: Sequence) -> None:
        name, limit = f"request {shown(seq.request_id)}", self.config.max_model_len
        if seq.request_id in self.sequences:
            raise RequestError("duplicate_id", f"{name}: another request with this id is not finished yet")
        if limit != -1 and seq.num_tokens_limit > limit:
            raise RequestError(
                "too_long",
                f"{name}: prompt ({seq.num_prompt_tokens}) + max_tokens ({seq.max_tokens}) = "
                f"{seq.num_tokens_limit} tokens, but max_model_len is {limit}",
            )
        # The last sampled token's KV is never written.
        needed, pool = self.block_manager.num_blocks_for(seq.num_tokens_limit - 1), self.block_manager.num_blocks
        if needed > pool:
            raise RequestError(
                "pool_too_small",
                f"{name}: prompt ({seq.num_prompt_tokens}) + max_tokens ({seq.max_tokens}) needs {needed} KV "
                f"blocks of {self.block_manager.block_size} tokens, but the pool has {pool}",
                needed,
                pool,
            )

    def _schedule_chunk(self, seq: Sequence, num_tokens: int, num_remaining_tokens: int) -> None:
        """Compute the next ``num_tokens`` of the sequence; one whose prompt is then complete starts to run."""
        seq.num_scheduled_tokens = num_tokens
        if num_remaining_tokens == 0 and seq.status is SequenceStatus.WAITING:
            seq.status = SequenceStatus.RUNNING
            self.waiting.popleft()
            self.running.append(seq)
        if self._emit is not None:
            self._emit(ChunkScheduled(seq.request_id, seq.num_cached_tokens, num_tokens, num_remaining_tokens))

    def _hold(self, seq: Sequence, reason: str) -> None:
        if self._emit is not None:
            self._emit(Held(seq.request_id, reason))

    def _grow(self, seq: Sequence) -> bool:
        """Give ``seq`` a block, preempting from the tail of ``running`` until one is free. False: ``seq`` itself,
        being the last one left, was preempted."""
        while not self.block_manager.can_append(seq):
            if not self.running:
                self.preempt(seq, seq)
                return False
            self.preempt(self.running.pop(), seq)
        self.block_manager.may_append(seq)
        return True

    def preempt(self, seq: Sequence, for_seq: Sequence | None = None) -> None:
        """Send ``seq``, already taken from ``running``, back to the head of ``waiting``. It keeps its tokens and
        gives up its blocks, so that ``for_seq`` can go on."""
        seq.status = SequenceStatus.WAITING
        seq.num_preemptions += 1
        self.waiting.appendleft(seq)
        if self._emit is not None:
            beneficiary = seq if for_seq is None else for_seq
            blocks, count = seq.block_table[::-1], seq.num_preemptions
            self._emit(Preempted(seq.request_id, beneficiary.request_id, blocks, seq.num_cached_tokens, count))
        self.block_manager.deallocate(seq)

    def postprocess(
        self, seqs: list[Sequence], token_ids: list[int], is_prefill: bool, time_s: float = 0.0
    ) -> list[Sequence]:
        """Take in a step's results: one sampled token per scheduled sequence. Returns the sequences that ended.

        The token of a sequence whose prompt is still incomplete is discarded. A sequence that was aborted while
        the step ran has nothing scheduled any more and is passed over. Tokens may be ``UNKNOWN_TOKEN`` until
        ``fill_in`` is told them, which must be before the next ``postprocess``.
        """
        block_size, may_publish = self.block_manager.block_size, self.block_manager.enable_prefix_caching
        for seq in seqs:
            if num_scheduled_tokens := seq.num_scheduled_tokens:
                num_cached_tokens = seq.num_cached_tokens + num_scheduled_tokens
                # As hash_blocks asks too: most tokens fill no block, and a call for each would show.
                if may_publish and num_cached_tokens // block_size > seq.num_published_blocks:
                    self.block_manager.hash_blocks(seq)
                seq.num_cached_tokens = num_cached_tokens
                seq.num_scheduled_tokens = 0
        ended = self._append_tokens(seqs, token_ids)
        for seq, reason in ended:
            self.finish(seq, reason, time_s)
        return [seq for seq, _ in ended]

    def _append_tokens(self, seqs: list[Sequence], token_ids: list[int]) -> list[tuple[Sequence, str]]:
        ended: list[tuple[Sequence, str]] = []
        passed_over: set[Sequence] = set()
        for seq, token_id in zip(seqs, token_ids, strict=True):
            if seq.num_cached_tokens < seq.num_tokens:
                passed_over.add(seq)
                continue
            # As Sequence.append_token; most tokens end nothing. A call for each would show, here too.
            seq.generated.append(token_id)
            num_tokens = seq.num_tokens = seq.num_tokens + 1
            if num_tokens == seq.num_tokens_limit or token_id in seq.end_token_ids or seq.stop_condition is not None:
                reason = self._finish_reason(seq, token_id)
                if reason is not None:
                    ended.append((seq, reason))
        appended = [seq for seq in seqs if seq not in passed_over] if passed_over else seqs
        if appended and self._emit is not None:
            tokens = [seq.generated[-1] for seq in appended] if passed_over else list(token_ids)
            self._emit(TokensAppended([seq.request_id for seq in appended], tokens))
        return ended

    def _finish_reason(self, seq: Sequence, token_id: int) -> str | None:
        if token_id in seq.end_token_ids:
            return "eos" if token_id in self.eos_token_ids and not seq.sampling_params.ignore_eos else "stop"
        if seq.stop_condition is not None and token_id != UNKNOWN_TOKEN and seq.stop_condition(seq):
            return "stop"
        return "length" if seq.num_tokens == seq.num_tokens_limit else None

    def fill_in(self, seqs: list[Sequence], token_ids: list[int], time_s: float = 0.0) -> list[Sequence]:
        """Tell the sampled tokens of a step that ``postprocess`` has taken in without them. Returns the sequences that
        ended, then or now; of one that ended by its length, the token may show another reason."""
        ended: list[Sequence] = []
        for seq, token_id in zip(seqs, token_ids, strict=True):
            if seq.last_token != UNKNOWN_TOKEN:
                continue
            seq.generated[-1] = token_id
            reason = self._finish_reason(seq, token_id)
            if reason is None:
                continue
            if seq.finish_reason is None:
                self.finish(seq, reason, time_s)
            elif seq.finish_reason == "length":
                seq.finish_reason = reason
            else:
                continue  # aborted while its token was on its way
            ended.append(seq)
        return ended

    def finish(self, seq: Sequence, reason: str, time_s: float = 0.0) -> None:
        """End a request in whatever queue it stands, and release its blocks."""
        queue = self.running if seq.status is SequenceStatus.RUNNING else self.waiting
        queue.remove(seq)
        del self.sequences[seq.request_id]
        seq.status = SequenceStatus.FINISHED
        seq.finish_reason = reason
        seq.num_scheduled_tokens = 0
        if self._emit is not None:
            self._emit(RequestFinished(seq.request_id, time_s, reason))
        self.block_manager.deallocate(seq)

    def abort(self, request: Sequence | RequestId, time_s: float = 0.0) -> bool:
        """End a request early, in any state; no token is appended to it afterwards. False: it was not there (any
        more), and nothing changed."""
        request_id = request.request_id if isinstance(request, Sequence) else request
        seq = self.sequences.get(request_id)
        if seq is None or (isinstance(request, Sequence) and request is not seq):
            return False
        self.finish(seq, "aborted", time_s)
        return True
