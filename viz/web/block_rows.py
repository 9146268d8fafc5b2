"""The KV blocks of a run as rows: the state of each, and who held it from when to when."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass

from numpy.typing import ArrayLike

from nanovllm.errors import TraceError
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    PrefixHit,
)
from nanovllm.trace.replay import Replay
from viz import palette
from viz.web.request_rows import NEVER
from viz.web.tracks import Track

CHANGES = ("", "freed", "published", "hit", "allocated", "evicted")
"""What a step can do to a block, the most telling last (an eviction implies that the block was handed out)."""

_CHANGE_CODES = {name: code for code, name in enumerate(CHANGES)}
_FREE, _CACHED, _IN_USE, _SHARED = map(
    palette.BLOCKS.index, (palette.FREE, palette.CACHED, palette.IN_USE, palette.SHARED)
)
_NO_HASH = -1


@dataclass(slots=True)
class _Holding:
    """A row of the table ``holding``: a request's table had the block at ``position``."""

    block: int
    row: int
    position: int
    start: int
    end: int


class BlockRows:
    """Follows a replay and writes down, frame by frame, what changed of each block."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._track = Track(("state", "change", "references", "hash", "free_rank"))
        self._changes: dict[int, int] = {}
        self._holdings: list[_Holding] = []
        self._held: dict[tuple[int, int], _Holding] = {}
        self._hashes: dict[str, int] = {}
        self._free_ranks = list(range(num_blocks))
        self._next_rank = num_blocks
        for block in range(num_blocks):
            self._track.put(block, NEVER, (_FREE, 0, 0, _NO_HASH, block))

    def observe(self, event: AnyEvent, replay: Replay, row: int, frame: int) -> None:
        """Note which blocks an event concerns that was just applied. ``row``: that of the request it names."""
        if isinstance(event, BlocksAllocated):
            self._hold(event.blocks, "allocated", len(replay.requests[event.request].block_table), row, frame)
        elif isinstance(event, PrefixHit):
            self._hold(event.blocks, "hit", len(event.blocks), row, frame)
        elif isinstance(event, BlocksFreed):
            self._free(event.blocks, replay, row, frame)
        elif isinstance(event, BlocksHashed):
            for block, block_hash in zip(event.blocks, event.hashes, strict=True):
                self._change(block, "published")
                self._hashes.setdefault(_checked(block_hash, replay), len(self._hashes))
        elif isinstance(event, BlockEvicted):
            self._change(event.block, "evicted")

    def _change(self, block: int, change: str) -> None:
        self._changes[block] = max(self._changes.get(block, 0), _CHANGE_CODES[change])

    def _hold(self, blocks: list[int], change: str, table_length: int, row: int, frame: int) -> None:
        for position, block in enumerate(blocks, start=table_length - len(blocks)):
            self._change(block, change)
            self._held[block, row] = holding = _Holding(block, row, position, frame, NEVER)
            self._holdings.append(holding)

    def _free(self, blocks: list[int], replay: Replay, row: int, frame: int) -> None:
        for block in blocks:
            self._change(block, "freed")
            self._held.pop((block, row)).end = frame
            if replay.ref_counts[block] == 0:
                self._free_ranks[block] = self._next_rank
                self._next_rank += 1

    def end_frame(self, frame: int, replay: Replay) -> None:
        """Write down the blocks that changed."""
        for block, change in self._changes.items():
            references = replay.ref_counts[block]
            block_hash = replay.block_hashes.get(block)
            if references:
                state = _IN_USE if references == 1 else _SHARED
            else:
                state = _FREE if block_hash is None else _CACHED
            hash_code = _NO_HASH if block_hash is None else self._hashes[block_hash]
            values = state, change, references, hash_code, self._free_ranks[block]
            self._track.put(block, frame, values)
        self._changes.clear()

    def tables(self, num_frames: int) -> dict[str, dict[str, ArrayLike]]:
        """``block``: a track; ``holding``: from which frame to which (``NEVER``: to the end) a request held a block;
        ``hash``: the upper and lower 32 bits of each hash. Of the first ``num_frames`` frames."""
        holdings = [holding for holding in self._holdings if holding.start < num_frames]
        holdings.sort(key=lambda holding: (holding.block, holding.start))
        for holding in holdings:
            holding.end = holding.end if holding.end < num_frames else NEVER
        hashes = [int(text, 16) for text in self._hashes]
        return {
            "block": self._track.columns(self.num_blocks),
            "holding": {
                name: array("q", [getattr(holding, name) for holding in holdings])
                for name in ("block", "row", "position", "start", "end")
            },
            "hash": {
                "high": array("q", [value >> 32 for value in hashes]),
                "low": array("q", [value & 0xFFFFFFFF for value in hashes]),
            },
        }


def _checked(block_hash: str, replay: Replay) -> str:
    if re.fullmatch("[0-9a-f]{16}", block_hash) is None:
        raise TraceError(replay.source, f"{block_hash!r} is no hash: a hash has 16 hex digits", replay.num_events)
    return block_hash
