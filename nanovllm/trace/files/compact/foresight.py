"""What can be foreseen of the next events from those before.

Writer and reader follow the same events, so what comes as foreseen need not be written. It is a matter of size only:
what comes otherwise is written in full, and events that break all laws are only foreseen badly.
"""

from __future__ import annotations

from itertools import repeat
from operator import attrgetter

from nanovllm.trace.events import (
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Preempted,
    PrefixHit,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
    TokensAppended,
)

_block, _hash = attrgetter("block"), attrgetter("hash")


class _Successors(dict[int, int]):
    """Block -> the one that was freed after it. Before that, the one of the next id: in the beginning, all are free in
    this order."""

    def __missing__(self, block: int) -> int:
        return block + 1


class Foresight:
    """Follows a run. Each event has its method, which says whether that came as foreseen what a shorter form of it
    leaves out.

    Memory: what the pool's blocks hold, and the tables of the requests that have not ended.
    """

    def __init__(self) -> None:
        # Lists of requests may be those of events: they are replaced, never changed.
        self.time = 0.0
        """When the last step was finished, in seconds."""
        self.decoding: list[RequestId] = []
        """Those that decode next: all that run."""
        self.due: list[RequestId] = []
        """Those that get a token at the end of this step."""
        self._step_start = 0.0
        self._tables: dict[RequestId, list[int]] = {}
        self._num_hashed: dict[RequestId, int] = {}
        self._hashes: dict[int, str] = {}
        """Block -> hash of what it holds."""
        self._following = _Successors()
        self._last_freed = -1
        self._last_allocated = -1

    # ---- what is foreseen ------------------------------------------------------------------------------------

    def next_blocks(self, count: int) -> list[int]:
        """The blocks at the head of the free list."""
        block, blocks = self._last_allocated, []
        for _ in range(count):
            block = self._following[block]
            blocks.append(block)
        return blocks

    def evictions(self, blocks: list[int]) -> list[BlockEvicted]:
        """What is told before these blocks are allocated."""
        hashes = self._hashes
        return [BlockEvicted(block, hashes[block]) for block in blocks if block in hashes]

    def blocks_to_hash(self, request: RequestId, count: int) -> list[int]:
        """The next blocks of a table whose content becomes shareable."""
        first = self._num_hashed.get(request, 0)
        return self._tables.get(request, [])[first : first + count]

    def blocks_to_free(self, request: RequestId) -> list[int]:
        """The blocks of a table in the order in which they are released."""
        return self._tables.get(request, [])[::-1]

    def end_of_step(self, host: float, device: float) -> float:
        """When a step is over in which these two follow each other, in seconds."""
        return self._step_start + (device + host)

    # ---- steps and requests ----------------------------------------------------------------------------------

    def step_started(self, event: StepStarted) -> bool:
        """At the time at which the last one was finished?"""
        is_foreseen = event.time == self.time != 0.0  # 0 has a sign, which comparing does not see
        self._step_start = event.time
        self.due = []
        return is_foreseen

    def chunk_scheduled(self, event: ChunkScheduled) -> bool:
        """Nothing of it is foreseen."""
        if event.remaining == 0:
            self.due = [*self.due, event.request]
            self.decoding = [*self.decoding, event.request]
        return False

    def decode_scheduled(self, event: DecodeScheduled) -> bool:
        """All that run?"""
        is_foreseen = event.requests == self.decoding
        self.decoding = self.due = event.requests
        return is_foreseen

    def tokens_appended(self, event: TokensAppended) -> bool:
        """For each that decoded in this step, then for each whose last chunk was computed?"""
        return event.requests == self.due

    def preempted(self, event: Preempted) -> bool:
        """Does it give up its whole table?"""
        self._leave(event.request)
        return event.blocks == self.blocks_to_free(event.request)

    def request_finished(self, event: RequestFinished) -> bool:
        """Nothing of it is foreseen."""
        self._leave(event.request)
        return False

    def _leave(self, request: RequestId) -> None:
        self.decoding = [other for other in self.decoding if other != request]

    def step_finished(self, event: StepFinished) -> bool:
        """After what host and device took?"""
        host, device, time = event.host, event.device, event.time
        self.time = time
        return host is not None and device is not None and time == self._step_start + (device + host) != 0.0

    # ---- blocks ----------------------------------------------------------------------------------------------

    def prefix_hit(self, event: PrefixHit) -> bool:
        """Nothing of it is foreseen."""
        self._tables[event.request] = event.blocks.copy()
        self._num_hashed[event.request] = len(event.blocks)
        return False

    def blocks_evicted(self, evicted: list[BlockEvicted], next_blocks: list[int]) -> bool:
        """Are these the evictions that the allocation of ``next_blocks``, the next event, needs?"""
        hashes = self._hashes
        blocks, told = [*map(_block, evicted)], [*map(_hash, evicted)]
        if blocks == next_blocks:  # nearly always: all of them held content
            return [*map(hashes.pop, blocks, repeat(None))] == told
        held = [block for block in next_blocks if block in hashes]
        is_foreseen = blocks == held and told == [hashes[block] for block in held]
        for block in blocks:
            hashes.pop(block, None)
        return is_foreseen

    def block_evicted(self, event: BlockEvicted) -> bool:
        """Not foreseen without what follows it."""
        self._hashes.pop(event.block, None)
        return False

    def blocks_allocated(self, event: BlocksAllocated) -> bool:
        """From the head of the free list?"""
        blocks, following = event.blocks, self._following
        if not blocks:
            return True
        is_foreseen = [*map(following.__getitem__, (self._last_allocated, *blocks[:-1]))] == blocks
        self._last_allocated = blocks[-1]
        table = self._tables.get(event.request)
        if table is None:
            self._tables[event.request] = blocks.copy()
        else:
            table += blocks
        return is_foreseen

    def blocks_hashed(self, event: BlocksHashed) -> bool:
        """Those of its table behind those that were hashed before?"""
        request, blocks, hashes = event.request, event.blocks, event.hashes
        first = self._num_hashed.get(request, 0)
        self._num_hashed[request] = last = first + len(hashes)
        self._hashes.update(zip(blocks, hashes, strict=False))
        return blocks == self._tables.get(request, [])[first:last]

    def blocks_freed(self, event: BlocksFreed) -> bool:
        """Its whole table?"""
        request, blocks = event.request, event.blocks
        is_foreseen = blocks == self.blocks_to_free(request)
        self._tables.pop(request, None)
        self._num_hashed.pop(request, None)
        if blocks:
            self._following.update(zip((self._last_freed, *blocks), blocks, strict=False))
            self._last_freed = blocks[-1]
        return is_foreseen
