"""What the time of a step depends on: a handful of sums over its sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence as Ordered
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import Sequence

_num_tokens = attrgetter("num_tokens")

KINDS = ("decode", "prefill", "mixed")
TILE_TOKENS = 64
"""So many queries go through a kernel for attention together; of fewer, the rest is computed in vain."""


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
    tile_pairs: float = 0.0
    """As ``chunk_pairs``, each chunk being filled up to whole tiles of ``TILE_TOKENS``."""
    longest_context: int = 0
    """The most tokens that any sequence attends to: kernels go through them one tile after the other."""
    shared_kv_tokens: int = 0
    """Of ``decode_kv_tokens``, those in leading blocks that another decode of the step reads too; 0 unless asked, and
    beside chunks: kernels that take both read each sequence's own."""

    @classmethod
    def of(cls, batch: ScheduledBatch, shared_block_size: int | None = None) -> StepShape:
        """The shape of a step of at least one sequence. ``shared_block_size``: look for shared leading blocks, of so
        many tokens."""
        lengths, chunk_tokens, chunk_pairs, tile_pairs, longest_chunk_context = [], 0, 0.0, 0.0, 0
        if batch.is_prefill:
            decodes = []
            for seq in batch.sequences:
                chunk, kv_tokens = seq.num_scheduled_tokens, seq.num_cached_tokens
                if chunk == 1:
                    decodes.append(seq)
                    lengths.append(kv_tokens + 1)
                else:
                    seen = kv_tokens + chunk / 2
                    chunk_tokens += chunk
                    chunk_pairs += chunk * seen
                    tile_pairs += -(-chunk // TILE_TOKENS) * TILE_TOKENS * seen
                    if kv_tokens + chunk > longest_chunk_context:
                        longest_chunk_context = kv_tokens + chunk
        else:
            decodes = batch.sequences
            lengths = [*map(_num_tokens, decodes)]
        longest_decode = max(lengths, default=0)
        are_all_decodes = chunk_tokens == 0
        num_shared = num_shared_blocks(decodes) if are_all_decodes and shared_block_size is not None else 0
        return cls(  # in the order of the fields: by their names, it would take twice as long, each step
            len(batch.sequences),
            chunk_tokens + len(lengths),
            len(lengths),
            sum(lengths),
            min(lengths, default=0),
            longest_decode,
            chunk_tokens,
            chunk_pairs,
            tile_pairs,
            max(longest_decode, longest_chunk_context),
            num_shared * (shared_block_size or 0),
        )

    @property
    def mean_decode(self) -> float:
        """The mean of the tokens that a decode attends to; 0 without decodes."""
        return self.decode_kv_tokens / self.num_decodes if self.num_decodes else 0.0

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return "decode" if not self.chunk_tokens else "mixed" if self.num_decodes else "prefill"

    @property
    def equivalent_prefix(self) -> float:
        """How many tokens would stand before a single chunk of as many tokens and pairs; at least 0."""
        return max(0.0, self.chunk_pairs / self.chunk_tokens - self.chunk_tokens / 2) if self.chunk_tokens else 0.0


def largest_shapes(shapes: Iterable[StepShape]) -> dict[str, StepShape]:
    """By kind of step, the most of each sum: how far measurements of these reach."""
    by_kind: dict[str, list[StepShape]] = {}
    for shape in shapes:
        by_kind.setdefault(shape.kind, []).append(shape)
    return {kind: StepShape(*map(max, zip(*by_kind[kind], strict=True))) for kind in KINDS if kind in by_kind}


def num_shared_blocks(decodes: Ordered[Sequence]) -> int:
    """Leading blocks of the decodes that another one before them holds too, together with all that come before it: the
    block tables form a tree, of which each node is read once."""
    all_tables = [table for seq in decodes if (table := seq.block_table)]
    if len({table[0] for table in all_tables}) == len(all_tables):
        return 0
    by_first_block: dict[int, list[list[int]]] = {}
    for table in all_tables:
        by_first_block.setdefault(table[0], []).append(table)
    num_blocks = 0
    for tables in by_first_block.values():
        if len(tables) > 1:
            tables.sort()  # those that have most in common are neighbours
            num_blocks += sum(_common_length(table, following) for table, following in pairwise(tables))
    return num_blocks


def _common_length(a: list[int], b: list[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
