"""A backend that computes nothing, but knows of each slot of the KV pool whose token's KV it holds."""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.sequence import Sequence
from nanovllm.trace.events import RequestId
from sim.token_ids import answer_token_ids

Content = tuple[int, ...] | None
"""The KV of a token depends on it and on all tokens before it: these tokens tell it. None: it depends on garbage."""


@dataclass(frozen=True)
class Misread:
    """A request builds upon KV that is not that of its own tokens."""

    step: int
    request: RequestId
    position: int
    """The first of its tokens whose KV is another's."""
    block: int
    expected: tuple[int, ...]
    found: Content

    def __str__(self) -> str:
        found = "nothing that was computed from sound KV" if self.found is None else f"the KV of {_shown(self.found)}"
        return (
            f"step {self.step}: {self.request} reads block {self.block} as the KV of {_shown(self.expected)}; "
            f"it holds {found}"
        )


class WatchedMemory:
    """A ``Backend`` with a KV pool of notes instead of numbers: ``misreads`` says who read what is not its own.

    Each step reads all that its sequences have cached, then writes what it computes, so that nothing can build upon KV
    of the same step. What follows upon a wrong read is garbage. The tokens that come out depend on the request's id
    only, so that a wrong read shows here and nowhere else. Meant for runs of a few tokens.
    """

    name = "museum"

    def __init__(self, num_kv_blocks: int, block_size: int, clock: VirtualClock) -> None:
        """A step takes a millisecond of ``clock``."""
        self.num_kv_blocks = num_kv_blocks
        self.engine: Engine | None = None
        """Whose memory it is, if misreads shall name the step."""
        self.misreads: list[Misread] = []
        self._block_size = block_size
        self._clock = clock
        self._slots: dict[tuple[int, int], Content] = {}

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend``."""
        written: dict[tuple[int, int], Content] = {}
        for seq in batch.sequences:
            misread = self._first_misread(seq)
            if misread is not None:
                self.misreads.append(misread)
            first = seq.num_cached_tokens
            for position in range(first, first + seq.num_scheduled_tokens):
                written[self._slot(seq, position)] = None if misread else tuple(seq.token_ids[: position + 1])
        self._slots.update(written)
        self._clock.advance(1e-3)
        return [answer_token_ids(seq.request_id, seq.max_tokens)[seq.num_completion_tokens] for seq in batch.sequences]

    def close(self) -> None:
        """There is nothing to give back."""

    def _first_misread(self, seq: Sequence) -> Misread | None:
        step = 0 if self.engine is None else self.engine.step_index
        for position in range(seq.num_cached_tokens):
            block, offset = self._slot(seq, position)
            expected, found = tuple(seq.token_ids[: position + 1]), self._slots.get((block, offset))
            if found != expected:
                return Misread(step, seq.request_id, position, block, expected, found)
        return None

    def _slot(self, seq: Sequence, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self._block_size)
        assert index < len(seq.block_table), (
            f"request {seq.request_id} needs a slot for token {position}, its table ends at "
            f"{len(seq.block_table) * self._block_size}"
        )
        return seq.block_table[index], offset


def _shown(tokens: tuple[int, ...]) -> str:
    return f"token {tokens[-1]} after {list(tokens[:-1])}" if len(tokens) > 1 else f"token {tokens[0]}"
