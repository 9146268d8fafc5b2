"""Stand-ins for the parts of the system that a test is not about."""

from __future__ import annotations

from collections.abc import Collection, Sequence as TokenIds

import xxhash

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import StepError
from nanovllm.trace.events import RequestId

KeyValue = tuple[int, int]
"""What the fake keeps of a token: its id and a digest of it and all that came before."""

LARGE_VOCABULARY = 2**31
"""So many token ids that no sampled one ever equals a token of a test's prompt."""


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
        """``failing_calls``: which calls of ``execute``, counted from 0, raise ``StepError``."""
        self.num_kv_blocks = num_kv_blocks
        self.calls: list[list[tuple[RequestId | None, int, int]]] = []
        """Of each call: the sequences' ids, cached tokens and scheduled tokens."""
        self.is_closed = False
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._failing_calls = frozenset(failing_calls)
        self._slots: list[KeyValue] = [(-1 - slot, -1 - slot) for slot in range(num_kv_blocks * block_size)]

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``."""
        call = len(self.calls)
        self.calls.append([(s.request_id, s.num_cached_tokens, s.num_scheduled_tokens) for s in batch.sequences])
        if call in self._failing_calls:
            raise StepError(f"call {call} was told to fail")
        written = [pair for seq in batch.sequences for pair in self._compute(seq)]
        for slot, key_value in written:
            self._slots[slot] = key_value
        ends = [seq.num_cached_tokens + seq.num_scheduled_tokens for seq in batch.sequences]
        states = [self._read(seq, end) for seq, end in zip(batch.sequences, ends, strict=True)]
        return [state % self._vocab_size for state in states]

    def close(self) -> None:
        """See ``Backend.close``."""
        self.is_closed = True

    def _compute(self, seq: Sequence) -> list[tuple[int, KeyValue]]:
        start = seq.num_cached_tokens
        state = self._read(seq, start)
        written: list[tuple[int, KeyValue]] = []
        for position in range(start, start + seq.num_scheduled_tokens):
            key_value = _key_value(state, seq.token_ids[position])
            written.append((self._slot(seq, position), key_value))
            state = _absorb(state, key_value)
        return written

    def _read(self, seq: Sequence, num_tokens: int) -> int:
        state = 0
        for position in range(num_tokens):
            state = _absorb(state, self._slots[self._slot(seq, position)])
        return state

    def _slot(self, seq: Sequence, position: int) -> int:
        block, offset = divmod(position, self._block_size)
        return seq.block_table[block] * self._block_size + offset


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
