"""What one step computes."""

from __future__ import annotations

from typing import NamedTuple

from nanovllm.engine.sequence import Sequence


class ScheduledBatch(NamedTuple):
    """The sequences of a step in order, each with its ``num_scheduled_tokens``; unpacks into two.

    A sequence computes its tokens ``[num_cached_tokens, num_cached_tokens + num_scheduled_tokens)``, whose KV
    goes into the slots that its ``block_table`` names. No sequences: the step computes nothing.
    """

    sequences: list[Sequence]
    is_prefill: bool

    @property
    def num_tokens(self) -> int:
        """Tokens computed by the step."""
        if not self.is_prefill:
            return len(self.sequences)
        return sum(seq.num_scheduled_tokens for seq in self.sequences)

    @property
    def phase(self) -> str:
        """``prefill``, ``decode`` or ``mixed``, as the trace names it."""
        return "prefill" if self.is_prefill else "decode"


class MixedBatch(ScheduledBatch):
    """A step that decodes and prefills: ``is_prefill`` is true, and the sequences that decode come first."""

    __slots__ = ()

    @property
    def phase(self) -> str:
        """``mixed``."""
        return "mixed"
