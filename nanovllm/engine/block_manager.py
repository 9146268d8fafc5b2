"""The KV pool: which block is free, which table holds it, and whose content can be reused.

A block is ``block_size`` consecutive token slots of KV cache. Free + in use = all blocks, always; the reference
count of a block is the number of block tables that hold it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import xxhash

from nanovllm.engine.free_list import FreeList
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.trace.events import BlockEvicted, BlocksAllocated, BlocksFreed, BlocksHashed, Emit, PrefixHit

HashFunction = Callable[[bytes, int], int]

_to_digits = "%016x".__mod__  # a format string takes twice as long, and this is done for each block


class BlockContent(msgspec.Struct, gc=False):
    """What a full block holds: its tokens, after those of all blocks before it.

    Contents are interned: two blocks have equal content if and only if they have the same ``BlockContent``. So
    "equal parent chain" is one comparison of ``parent``, the serial number of the content before (0: there is
    none). Numbers rather than references: the garbage collector has nothing to follow in a pool of millions.
    """

    serial: int
    parent: int
    hash: int
    tokens: bytes
    block: int
    """The block that holds it: of several, the one published last."""
    hash_digits: str
    """The hash as traces write it; empty if nobody listens."""
    colliding: BlockContent | None = None
    """Another content with the same hash, if there is one."""
    older_copies: tuple[int, ...] = ()
    """The blocks that hold it besides, in order of publication."""

    @property
    def copies(self) -> tuple[int, ...]:
        """All blocks that hold it, in order of publication."""
        return (*self.older_copies, self.block)

    def add_copy(self, block: int) -> None:
        """One more block holds it now."""
        self.older_copies, self.block = self.copies, block

    def remove_copy(self, block: int) -> None:
        """One of several blocks does not hold it any more."""
        *older, self.block = (copy for copy in self.copies if copy != block)
        self.older_copies = tuple(older)


class BlockManager:
    """Hands out blocks, takes them back, and finds those whose KV a sequence can reuse.

    Questions (``can_...``) change nothing and answer None or False for "no room now". Allocation takes the head
    of the free list, release appends to its tail in reverse table order: the deepest block is reused first and
    prefixes live longest. A released block keeps its content until it is handed out again.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_caching: bool = True,
        hash_function: HashFunction = xxhash.xxh64_intdigest,
        emit: Emit | None = None,
    ) -> None:
        """``hash_function(tokens as little-endian 32-bit numbers, hash of the parent block or 0)`` -> 64 bits."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.ref_counts = [0] * num_blocks
        self.free_blocks = FreeList(num_blocks)
        self.contents: list[BlockContent | None] = [None] * num_blocks
        self._contents_by_hash: dict[int, BlockContent] = {}
        self._num_contents = 0
        self._hash_function = hash_function
        self._emit = emit

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no table holds, whether they still cache content or not."""
        return len(self.free_blocks)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold the KV of this many tokens."""
        return -(-num_tokens // self.block_size)

    # ---- admission -------------------------------------------------------------------------------------------

    def can_allocate(
        self, seq: Sequence, num_reserved_blocks: int = 0, max_new_tokens: int | None = None
    ) -> int | None:
        """How many leading blocks of ``seq`` can be reused, or None if the whole sequence does not fit now.

        ``num_reserved_blocks`` must stay free. ``max_new_tokens``: only so many tokens behind the hits need fit. A hit
        on a free block is charged like a new one: reviving it takes it off the free list.
        """
        hits = self._find_cached_blocks(seq)
        num_free_hits = sum(not self.ref_counts[block] for block in hits)
        num_new_blocks = self.num_blocks_for(self._first_end(seq, len(hits), max_new_tokens)) - len(hits)
        if num_new_blocks + num_free_hits + num_reserved_blocks > len(self.free_blocks):
            return None
        return len(hits)

    def allocate(self, seq: Sequence, num_cached_blocks: int, max_new_tokens: int | None = None) -> None:
        """Give ``seq`` its block table: ``num_cached_blocks`` reused blocks, then new ones for all its tokens, or for
        the next ``max_new_tokens``."""
        assert not seq.block_table, f"{seq!r} is already allocated"
        # Hits first: a new block must not be one that is about to be hit.
        hits = self._find_cached_blocks(seq)[:num_cached_blocks]
        assert len(hits) == num_cached_blocks, "blocks counted by can_allocate are gone"
        for block in hits:
            if self.ref_counts[block] == 0:
                self.free_blocks.remove(block)
            self.ref_counts[block] += 1
        seq.block_table = hits
        seq.num_published_blocks = num_cached_blocks
        seq.num_cached_tokens = num_cached_blocks * self.block_size
        if not seq.num_preemptions:
            seq.num_prefix_hit_tokens = seq.num_cached_tokens
        if hits and self._emit is not None:
            self._emit(PrefixHit(seq.request_id, list(hits), seq.num_cached_tokens))
        end = self._first_end(seq, num_cached_blocks, max_new_tokens)
        self._append_new_blocks(seq, self.num_blocks_for(end) - num_cached_blocks)

    def _first_end(self, seq: Sequence, num_cached_blocks: int, max_new_tokens: int | None) -> int:
        """How far a sequence comes whose first chunk follows so many hits."""
        if max_new_tokens is None:
            return seq.num_tokens
        return min(seq.num_tokens, num_cached_blocks * self.block_size + max_new_tokens)

    def _find_cached_blocks(self, seq: Sequence) -> list[int]:
        """Leading blocks of ``seq`` that are in the cache, up to the first miss, never its last block: something
        must be left to compute."""
        found: list[int] = []
        if not self.enable_prefix_caching:
            return found
        num_candidates = (seq.num_tokens - 1) // self.block_size
        self._hash_full_blocks(seq, num_candidates)
        parent = 0
        for index in range(num_candidates):
            content = self._find_content(seq, index, parent)
            if content is None:
                break
            found.append(content.block)
            parent = content.serial
        return found

    # ---- growth ----------------------------------------------------------------------------------------------

    def needs_block(self, seq: Sequence) -> bool:
        """Whether the newest token of ``seq`` has no slot in its table yet."""
        return seq.num_tokens > len(seq.block_table) * self.block_size

    def can_append(self, seq: Sequence) -> bool:
        """Whether the newest token of ``seq`` has a slot in its table, or a block is free to give it one."""
        return not self.needs_block(seq) or bool(self.free_blocks)

    def may_append(self, seq: Sequence) -> None:
        """Append a block to the table of ``seq`` if its newest token has no slot yet."""
        if self.needs_block(seq):
            self._append_new_blocks(seq, 1)

    def num_missing_blocks(self, seq: Sequence, num_tokens: int) -> int:
        """Blocks that the table of ``seq`` lacks to hold its first ``num_tokens`` tokens."""
        return max(0, self.num_blocks_for(num_tokens) - len(seq.block_table))

    def extend(self, seq: Sequence, num_tokens: int) -> None:
        """Append the blocks that the table of ``seq`` lacks to hold its first ``num_tokens`` tokens."""
        if count := self.num_missing_blocks(seq, num_tokens):
            self._append_new_blocks(seq, count)

    def _append_new_blocks(self, seq: Sequence, count: int) -> None:
        blocks = self.free_blocks.head(count)
        assert len(blocks) == count, f"{count} blocks are taken, but only {len(blocks)} are free"
        self._evict(blocks)
        self.free_blocks.pop_head(count)
        ref_counts = self.ref_counts
        for block in blocks:
            ref_counts[block] = 1
        seq.block_table += blocks
        if self._emit is not None:
            self._emit(BlocksAllocated(seq.request_id, blocks))

    def _evict(self, blocks: list[int]) -> None:
        """Forget what these free blocks cache."""
        contents, contents_by_hash, emit = self.contents, self._contents_by_hash, self._emit
        for block in blocks:
            content = contents[block]
            if content is None:
                continue
            contents[block] = None
            if content.older_copies:
                content.remove_copy(block)
            else:
                first = contents_by_hash.pop(content.hash)
                if first is not content or content.colliding is not None:
                    self._unlink(content, first)
            if emit is not None:
                emit(BlockEvicted(block, content.hash_digits))

    def _unlink(self, content: BlockContent, first: BlockContent) -> None:
        """Take a content out of those with its hash, of which there are several; ``first`` led to them."""
        remaining = content.colliding if first is content else first
        assert remaining is not None, f"content {content.serial} is alone"
        self._contents_by_hash[content.hash] = remaining
        if first is not content:
            while first.colliding is not content:
                assert first.colliding is not None, f"content {content.serial} is not in the map"
                first = first.colliding
            first.colliding = content.colliding

    # ---- publication -----------------------------------------------------------------------------------------

    def hash_blocks(self, seq: Sequence) -> None:
        """Publish the blocks that this step completed, never before their KV exists: call it when the step's
        ``num_scheduled_tokens`` are computed and not yet counted in ``num_cached_tokens``."""
        first = seq.num_published_blocks
        last = (seq.num_cached_tokens + seq.num_scheduled_tokens) // self.block_size
        if first == last or not self.enable_prefix_caching:
            return
        self._hash_full_blocks(seq, last)
        parent = self._serial_of(seq.block_table[first - 1]) if first else 0
        blocks, hashes, contents = seq.block_table[first:last], seq.block_hashes[first:last], self._contents_by_hash
        digits = [""] * len(blocks) if self._emit is None else [*map(_to_digits, hashes)]
        for index, block, value, hash_digits in zip(range(first, last), blocks, hashes, digits, strict=True):
            candidate = contents.get(value)
            content = None if candidate is None else self._find_content(seq, index, parent)
            if content is None:
                self._num_contents = serial = self._num_contents + 1
                tokens = seq.block_tokens[index]
                content = BlockContent(serial, parent, value, tokens, block, hash_digits, candidate)
                contents[value] = content
            else:
                content.add_copy(block)
            self.contents[block] = content
            parent = content.serial
        seq.num_published_blocks = last
        if self._emit is not None:
            self._emit(BlocksHashed(seq.request_id, blocks, digits))

    def _serial_of(self, block: int) -> int:
        content = self.contents[block]
        assert content is not None, f"block {block} heads a published block and is not published itself"
        return content.serial

    def _hash_full_blocks(self, seq: Sequence, num_blocks: int) -> None:
        """Extend the hashes kept on ``seq`` to its first ``num_blocks`` blocks; each is computed once."""
        first = len(seq.block_hashes)
        if first >= num_blocks:
            return
        size = self.block_size
        is_known = num_blocks * size < seq.num_tokens or seq.last_token != UNKNOWN_TOKEN
        assert is_known, f"{seq!r} is hashed with a token that is not known yet"
        width_bytes = size * 4
        data = seq.token_bytes(first * size, num_blocks * size)
        parent_hash = seq.block_hashes[-1] if first else 0
        blocks = [data[start : start + width_bytes] for start in range(0, len(data), width_bytes)]
        seq.block_tokens += blocks
        for tokens in blocks:
            parent_hash = self._hash_function(tokens, parent_hash)
            seq.block_hashes.append(parent_hash)

    def _find_content(self, seq: Sequence, index: int, parent: int) -> BlockContent | None:
        """The cached content equal to block ``index`` of ``seq``: equal hash, tokens and parent chain, so that a
        hash collision can never serve wrong KV."""
        content = self._contents_by_hash.get(seq.block_hashes[index])
        while content is not None and (content.parent != parent or content.tokens != seq.block_tokens[index]):
            content = content.colliding
        return content

    # ---- release ---------------------------------------------------------------------------------------------

    def deallocate(self, seq: Sequence) -> None:
        """Release all blocks of ``seq``, the deepest first, and forget how far its KV was computed."""
        released = seq.block_table[::-1]
        ref_counts = self.ref_counts
        freed: list[int] = []
        for block in released:
            count = ref_counts[block] = ref_counts[block] - 1
            assert count >= 0, f"block {block} is released twice"
            if count == 0:
                freed.append(block)
        self.free_blocks.extend(freed)
        seq.block_table = []
        seq.num_published_blocks = 0
        seq.num_cached_tokens = 0
        if released and self._emit is not None:
            self._emit(BlocksFreed(seq.request_id, released))
