"""What the time of a step depends on: a handful of sums over its sequences."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from nanovllm.engine.batch import ScheduledBatch

_num_tokens = attrgetter("num_tokens")


class StepShape(NamedTuple):
    """The sums. A *decode* is a sequence that computes one token, a *chunk* one that computes several, whatever the
    scheduler calls them: kernels see no other difference."""

    num_sequences: int
    num_tokens: int
    """Computed by the step."""
    num_decodes: int
    decode_kv_tokens: int
    """Tokens that the decodes attend to, each decode's own among them."""
    shortest_decode: int
    longest_decode: int
    """The fewest and the most tokens that a decode attends to; 0 without decodes."""
    chunk_tokens: int
    """Computed by all chunks."""
    chunk_pairs: float
    """Σ chunk · (kv + chunk / 2), kv being the tokens before it: pairs of a chunk's token and one that it sees."""

    @classmethod
    def of(cls, batch: ScheduledBatch) -> StepShape:
        """The shape of a step of at least one sequence."""
        sequences = batch.sequences
        if not batch.is_prefill:
            lengths = [*map(_num_tokens, sequences)]
            num_decodes = len(lengths)
            return cls(num_decodes, num_decodes, num_decodes, sum(lengths), min(lengths), max(lengths), 0, 0.0)
        lengths, chunk_tokens, chunk_pairs = [], 0, 0.0
        for seq in sequences:
            chunk, kv_tokens = seq.num_scheduled_tokens, seq.num_cached_tokens
            if chunk == 1:
                lengths.append(kv_tokens + 1)
            else:
                chunk_tokens += chunk
                chunk_pairs += chunk * (kv_tokens + chunk / 2)
        shortest, longest = (min(lengths), max(lengths)) if lengths else (0, 0)
        num_tokens = chunk_tokens + len(lengths)
        return cls(len(sequences), num_tokens, len(lengths), sum(lengths), shortest, longest, chunk_tokens, chunk_pairs)

    @property
    def equivalent_prefix(self) -> float:
        """How many tokens would stand before a single chunk of as many tokens and pairs; at least 0."""
        return max(0.0, self.chunk_pairs / self.chunk_tokens - self.chunk_tokens / 2) if self.chunk_tokens else 0.0
