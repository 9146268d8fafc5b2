"""Stand-ins for the parts of the system that a test is not about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence as TokenIds
from typing import NamedTuple

import xxhash

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.errors import StepError
from nanovllm.trace.events import RequestId

KeyValue = tuple[int, int]
"""What the fake keeps of a token: its id and a digest of it and all that came before."""

LARGE_VOCABULARY = 2**31
"""So many token ids that no sampled one ever equals a token of a test's prompt."""


class Row(NamedTuple):
    """What a step computes of one sequence: the tokens ``token_ids``, which stand at ``start`` and after it."""

    seq: Sequence
    start: int
    token_ids: list[int]
    block_table: list[int]

    @classmethod
    def of(cls, seq: Sequence) -> Row:
        start = seq.num_cached_tokens
        return cls(seq, start, seq.token_ids[start : start + seq.num_scheduled_tokens], list(seq.block_table))


class HashBackend:
    """A backend whose next token is a hash of all the KV that the sequence can see.

    It keeps one ``KeyValue`` per slot of the pool, writes the scheduled tokens' through the block table, and
    samples from what it reads back through the block table, never from the sequence's own tokens. So a wrong
    block table, a stale or premature prefix hit, a token left out or two sequences in one slot change the output
    of some request, and ``expected_completion`` says what it should have been.

    The pool starts full of garbage, another in each slot, like memory. A step sees the pool as the step before
    left it: KV that another sequence writes in the same step cannot be built upon.
    """

    name = "hash"

    def __init__(
        self,
        num_kv_blocks: int,
        block_size: int,
        *,
        vocab_size: int = LARGE_VOCABULARY,
        failing_calls: Collection[int] = (),
    ) -> None:
        """``failing_calls``: which steps, counted from 0, raise ``StepError`` when they are handed over."""
        self.num_kv_blocks = num_kv_blocks
        self.calls: list[list[tuple[RequestId, int, int]]] = []
        """Of each step: the sequences' ids, cached tokens and scheduled tokens."""
        self.is_closed = False
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._failing_calls = frozenset(failing_calls)
        self._slots: list[KeyValue] = [(-1 - slot, -1 - slot) for slot in range(num_kv_blocks * block_size)]

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``."""
        return self._compute(self._read_batch(batch))

    def close(self) -> None:
        """See ``Backend.close``."""
        self.is_closed = True

    def _read_batch(self, batch: ScheduledBatch) -> list[Row]:
        call = len(self.calls)
        self.calls.append([(s.request_id, s.num_cached_tokens, s.num_scheduled_tokens) for s in batch.sequences])
        if call in self._failing_calls:
            raise StepError(f"call {call} was told to fail")
        return [Row.of(seq) for seq in batch.sequences]

    def _compute(self, rows: list[Row]) -> list[int]:
        written = [pair for row in rows for pair in self._write(row)]
        for slot, key_value in written:
            self._slots[slot] = key_value
        return [self._read(row, row.start + len(row.token_ids)) % self._vocab_size for row in rows]

    def _write(self, row: Row) -> list[tuple[int, KeyValue]]:
        state = self._read(row, row.start)
        written: list[tuple[int, KeyValue]] = []
        for position, token in enumerate(row.token_ids, start=row.start):
            key_value = _key_value(state, token)
            written.append((self._slot(row, position), key_value))
            state = _absorb(state, key_value)
        return written

    def _read(self, row: Row, num_tokens: int) -> int:
        state = 0
        for position in range(num_tokens):
            state = _absorb(state, self._slots[self._slot(row, position)])
        return state

    def _slot(self, row: Row, position: int) -> int:
        block, offset = divmod(position, self._block_size)
        return row.block_table[block] * self._block_size + offset


class DeferredHashBackend(HashBackend):
    """A ``HashBackend`` that is given steps ahead of time, and computes each when its result is asked for, as late as
    a card may.

    Of a sequence it knows what it read when the step was submitted. A token that was unknown then is one of those
    that it sampled in the step before, and in no other.
    """

    def __init__(
        self,
        num_kv_blocks: int,
        block_size: int,
        *,
        vocab_size: int = LARGE_VOCABULARY,
        failing_calls: Collection[int] = (),
        on_submit: Callable[[int], object] = lambda step: None,
        on_result: Callable[[int], object] = lambda step: None,
    ) -> None:
        """``on_submit``, ``on_result``: called with the number of the call first."""
        super().__init__(num_kv_blocks, block_size, vocab_size=vocab_size, failing_calls=failing_calls)
        self.pending: list[DeferredStep] = []
        """The steps on their way."""
        self.sampled: Mapping[Sequence, int] = {}
        """By the last step that was computed."""
        self.on_submit = on_submit
        self.on_result = on_result

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``."""
        return self.submit(batch).result()

    def submit(self, batch: ScheduledBatch) -> DeferredStep:
        """See ``AsynchronousBackend.submit``."""
        self.on_submit(len(self.calls))
        assert len(self.pending) < 2, "a third step is submitted"
        step = DeferredStep(self, len(self.calls), self._read_batch(batch))
        self.pending.append(step)
        return step

    def compute(self, step: DeferredStep) -> list[int]:
        """What ``step`` samples; it must be the first of those on their way."""
        self.on_result(step.call)
        assert self.pending[0] is step, "results are asked for out of order"
        sampled = self._compute([self._fill_in(row) for row in step.rows])
        self.pending.pop(0)
        self.sampled = {row.seq: token for row, token in zip(step.rows, sampled, strict=True)}
        return sampled

    def _fill_in(self, row: Row) -> Row:
        if UNKNOWN_TOKEN not in row.token_ids:
            return row
        assert row.token_ids.index(UNKNOWN_TOKEN) == len(row.token_ids) - 1, "a token before the newest is unknown"
        return row._replace(token_ids=[*row.token_ids[:-1], self.sampled[row.seq]])


class DeferredStep(NamedTuple):
    """A step on its way to a ``DeferredHashBackend``."""

    backend: DeferredHashBackend
    call: int
    rows: list[Row]

    def result(self) -> list[int]:
        """See ``PendingStep.result``."""
        return self.backend.compute(self)


def expected_completion(
    prompt: TokenIds[int],
    max_tokens: int,
    *,
    vocab_size: int = LARGE_VOCABULARY,
    end_token_ids: Collection[int] = (),
) -> list[int]:
    """What a request must get from ``HashBackend``, whatever runs beside it: the same hash over the tokens in one
    piece, with no scheduler, no blocks and no cache."""
    state = 0
    for token in prompt:
        state = _absorb(state, _key_value(state, token))
    completion: list[int] = []
    while len(completion) < max_tokens:
        token = state % vocab_size
        completion.append(token)
        if token in end_token_ids:
            break
        state = _absorb(state, _key_value(state, token))
    return completion


def _key_value(state: int, token: int) -> KeyValue:
    return token, _digest(state, token)


def _absorb(state: int, key_value: KeyValue) -> int:
    return _digest(state, *key_value)


def _digest(*numbers: int) -> int:
    return xxhash.xxh64_intdigest(b"".join((number % 2**64).to_bytes(8, "little") for number in numbers))


def compute(manager: BlockManager, seq: Sequence, num_tokens: int) -> None:
    """What scheduler and backend do to a sequence of a step that computes ``num_tokens`` of it."""
    seq.num_scheduled_tokens = num_tokens
    manager.hash_blocks(seq)
    seq.num_cached_tokens += num_tokens
    seq.num_scheduled_tokens = 0
