"""Block managers that are ours but for one rule. The docstrings say what each does instead, and who met it."""

from __future__ import annotations

from typing import Any

import xxhash

from nanovllm.engine.block_manager import BlockContent, BlockManager
from nanovllm.engine.sequence import Sequence
from nanovllm.trace.events import PrefixHit

# ---- growth ------------------------------------------------------------------------------------------------------


class GrowsOnRemainderOne(BlockManager):
    """Appends a block when ``num_tokens % block_size == 1``, which for block size 1 is never so."""

    def may_append(self, seq: Sequence) -> None:
        """Append a block after each full one."""
        if seq.num_tokens % self.block_size == 1:
            self._append_new_blocks(seq, 1)


# ---- admission ---------------------------------------------------------------------------------------------------


class ChargesOnlyNewBlocks(BlockManager):
    """Thinks that hits cost nothing, also those that it must take off the free list (ATOM 902)."""

    def can_allocate(
        self, seq: Sequence, num_reserved_blocks: int = 0, max_new_tokens: int | None = None
    ) -> int | None:
        """As ours, without the free hits."""
        num_hits = len(self._find_cached_blocks(seq))
        num_new_blocks = self.num_blocks_for(self._first_end(seq, num_hits, max_new_tokens)) - num_hits
        return num_hits if num_new_blocks + num_reserved_blocks <= self.num_free_blocks else None


class TakesNewBlocksFirst(BlockManager):
    """Takes new blocks off the free list before it claims the hits, which may be next on that list (vLLM 10507)."""

    def allocate(self, seq: Sequence, num_cached_blocks: int, max_new_tokens: int | None = None) -> None:
        """As ours, in the other order."""
        hits = self._find_cached_blocks(seq)[:num_cached_blocks]
        end = self._first_end(seq, num_cached_blocks, max_new_tokens)
        self._append_new_blocks(seq, self.num_blocks_for(end) - num_cached_blocks)
        for block in hits:
            if not self.ref_counts[block]:
                self.free_blocks.remove(block)
            self.ref_counts[block] += 1
        if hits and self._emit is not None:
            self._emit(PrefixHit(seq.request_id, list(hits), num_cached_blocks * self.block_size))
        seq.block_table = hits + seq.block_table
        seq.num_published_blocks = num_cached_blocks
        seq.num_cached_tokens = num_cached_blocks * self.block_size


class ReusesTheLastBlock(BlockManager):
    """Looks up the last block of a prompt, too, so that there may be nothing left to compute (nano-vLLM 199)."""

    def _find_cached_blocks(self, seq: Sequence) -> list[int]:
        seq.num_tokens += 1
        found = super()._find_cached_blocks(seq)
        seq.num_tokens -= 1
        return found


# ---- the prefix cache --------------------------------------------------------------------------------------------


class TrustsTheHash(BlockManager):
    """Takes equal hashes for equal contents. All hashes are 0 here, the worst that can be."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"hash_function": lambda tokens, parent_hash: 0, **options})

    def _find_content(self, seq: Sequence, index: int, parent: int) -> BlockContent | None:
        return self._contents_by_hash.get(seq.block_hashes[index])


class HashesWithoutTheParent(TrustsTheHash):
    """Hashes a block's own tokens only, and trusts that."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, hash_function=lambda tokens, parent_hash: xxhash.xxh64_intdigest(tokens), **options)


class KnowsOneCopy(BlockManager):
    """Remembers of each content the copy that was published last, and with it forgets the content (nano-vLLM 219)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._forgotten: set[int] = set()

    def _evict(self, blocks: list[int]) -> None:
        for block in blocks:
            content = self.contents[block]
            if content is not None and block == content.copies[-1]:
                self._forgotten.update(content.copies)
            super()._evict([block])

    def _find_cached_blocks(self, seq: Sequence) -> list[int]:
        found = super()._find_cached_blocks(seq)
        return next((found[:index] for index, block in enumerate(found) if block in self._forgotten), found)

    def _append_new_blocks(self, seq: Sequence, count: int) -> None:
        super()._append_new_blocks(seq, count)
        self._forgotten.difference_update(seq.block_table[-count:])


class KeepsStaleHashes(BlockManager):
    """Hands a block out and still finds its old content there (nano-vLLM 163)."""

    def _evict(self, blocks: list[int]) -> None:
        """Forget nothing."""


class PublishesBeforeComputing(BlockManager):
    """Lets others find a block as soon as it is allocated (nano-vLLM 208, SGLang 38319)."""

    def allocate(self, seq: Sequence, num_cached_blocks: int, max_new_tokens: int | None = None) -> None:
        """As ours, and publish all full blocks at once."""
        super().allocate(seq, num_cached_blocks, max_new_tokens)
        seq.num_scheduled_tokens = seq.num_tokens - seq.num_cached_tokens
        self.hash_blocks(seq)
        seq.num_scheduled_tokens = 0


class ReleasesTheFirstBlockFirst(BlockManager):
    """Releases a table from its first block on, so that prefixes are evicted before their ends (llm-d-sim 704)."""

    def deallocate(self, seq: Sequence) -> None:
        """As ours, in the other order."""
        seq.block_table.reverse()
        super().deallocate(seq)
