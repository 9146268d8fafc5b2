"""What the time of a step depends on: a handful of sums over its sequences."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from operator import attrgetter
from typing import NamedTuple

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import Sequence

_num_tokens = attrgetter("num_tokens")

KINDS = ("decode", "prefill", "mixed")


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
    chunk_kv_tokens: int = 0
    """Tokens before the chunks: what they read from the cache."""
    shared_kv_tokens: int = 0
    """Of ``decode_kv_tokens``, those in leading blocks that an earlier decode of the step holds too; 0 unless asked."""

    @classmethod
    def of(cls, batch: ScheduledBatch, shared_block_size: int | None = None) -> StepShape:
        """The shape of a step of at least one sequence. ``shared_block_size``: look for shared leading blocks, of so
        many tokens."""
        lengths, chunk_tokens, chunk_pairs, chunk_kv_tokens = [], 0, 0.0, 0
        if batch.is_prefill:
            decodes = []
            for seq in batch.sequences:
                chunk, kv_tokens = seq.num_scheduled_tokens, seq.num_cached_tokens
                if chunk == 1:
                    decodes.append(seq)
                    lengths.append(kv_tokens + 1)
                else:
                    chunk_tokens += chunk
                    chunk_kv_tokens += kv_tokens
                    chunk_pairs += chunk * (kv_tokens + chunk / 2)
        else:
            decodes = batch.sequences
            lengths = [*map(_num_tokens, decodes)]
        return cls(
            num_sequences=len(batch.sequences),
            num_tokens=chunk_tokens + len(lengths),
            num_decodes=len(lengths),
            decode_kv_tokens=sum(lengths),
            shortest_decode=min(lengths, default=0),
            longest_decode=max(lengths, default=0),
            chunk_tokens=chunk_tokens,
            chunk_pairs=chunk_pairs,
            chunk_kv_tokens=chunk_kv_tokens,
            shared_kv_tokens=0 if shared_block_size is None else shared_block_size * num_shared_blocks(decodes),
        )

    @property
    def num_read_tokens(self) -> int:
        """Tokens whose KV is read from memory: what several decodes share, once."""
        return self.decode_kv_tokens - self.shared_kv_tokens + self.chunk_kv_tokens

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return "decode" if not self.chunk_tokens else "mixed" if self.num_decodes else "prefill"

    @property
    def equivalent_prefix(self) -> float:
        """How many tokens would stand before a single chunk of as many tokens and pairs; at least 0."""
        return max(0.0, self.chunk_pairs / self.chunk_tokens - self.chunk_tokens / 2) if self.chunk_tokens else 0.0


def num_shared_blocks(decodes: Ordered[Sequence]) -> int:
    """Leading blocks that all decodes with the same first block have in common, counted for each of them but one."""
    by_first_block: dict[int, list[list[int]]] = {}
    for seq in decodes:
        if seq.block_table:
            by_first_block.setdefault(seq.block_table[0], []).append(seq.block_table)
    num_blocks = 0
    for tables in by_first_block.values():
        if len(tables) > 1:
            # What the least and the greatest of them share, all share.
            num_blocks += (len(tables) - 1) * _common_length(min(tables), max(tables))
    return num_blocks


def _common_length(a: list[int], b: list[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
