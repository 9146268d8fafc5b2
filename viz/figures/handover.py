"""Follows KV blocks from a preempted request to the one that it was preempted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanovllm.trace.events import AnyEvent, BlockEvicted, BlocksAllocated, BlocksFreed, Preempted, RequestId
from nanovllm.trace.replay import Replay
from viz.figures.history import Source
from viz.figures.inside_step import walk_preempting_step


@dataclass(frozen=True)
class PoolFrame:
    """Block tables, free list and queue at one moment within a step."""

    action: str
    remark: str
    tables: dict[RequestId, tuple[int, ...]]
    """Of all requests that have not ended: empty while they hold no block."""
    free: tuple[int, ...]
    """The free list, its head first."""
    cached: frozenset[int]
    """Those of ``free`` whose content can still be reused."""
    waiting: tuple[RequestId, ...]


@dataclass(frozen=True)
class BlockHandover:
    """The first growth of a step that needed preemptions. Frame 0 is before them, then one a preemption, and, if the
    request went on, one with its new block."""

    step: int
    request: RequestId
    victims: tuple[RequestId, ...]
    freed: tuple[int, ...]
    """Blocks that the preemptions added to the free list, in its order."""
    kept: tuple[int, ...]
    """Blocks that the victims gave up and others still hold."""
    taken: tuple[int, ...]
    """Blocks that the request got; empty if it had to preempt itself."""
    evicted: tuple[int, ...]
    """Those of ``taken`` whose cached content was lost by that."""
    frames: tuple[PoolFrame, ...]


def block_handover_data(source: Source, step: int | None = None) -> BlockHandover:
    """Replay a step that preempts and follow the blocks.

    ``step`` None: the first that preempts a request for another. Raises ``UserError`` if nobody is preempted in the
    step.
    """
    step, states = walk_preempting_step(source, step)
    follower = _Follower()
    for event, replay in states:
        follower.follow(event, replay)
        if follower.is_over:
            break
    assert follower.request is not None, "the step was chosen for its preemption"
    return BlockHandover(
        step,
        follower.request,
        tuple(follower.victims),
        tuple(follower.freed),
        tuple(follower.kept),
        follower.taken,
        tuple(follower.evicted),
        tuple(follower.frames),
    )


class _Follower:
    def __init__(self) -> None:
        self.request: RequestId | None = None
        self.victims: list[RequestId] = []
        self.freed: list[int] = []
        self.kept: list[int] = []
        self.taken: tuple[int, ...] = ()
        self.evicted: list[int] = []
        self.frames: list[PoolFrame] = []
        self.is_over = False

    def follow(self, event: AnyEvent, replay: Replay) -> None:
        if isinstance(event, Preempted):
            if self.request is None:
                self.request = event.for_request
                # The victim already heads the queue, but still has its blocks.
                before = tuple(replay.waiting)[1:]
                num_free = len(replay.free_blocks)
                remark = f"{num_free} free, which is not enough" if num_free else "none is free"
                self._note(f"{self.request} needs a block", remark, replay, before)
            self.victims.append(event.request)
        elif self.request is None:
            return
        elif isinstance(event, BlocksFreed):
            self._free(event, replay)
        elif isinstance(event, BlockEvicted):
            self.evicted.append(event.block)
        elif isinstance(event, BlocksAllocated) and event.request == self.request:
            self.taken = tuple(event.blocks)
            remark = "its cached content is lost" if self.evicted else "it was empty"
            self._note(f"{self.request} takes {_blocks(self.taken)}", remark, replay)
            self.is_over = True

    def _free(self, event: BlocksFreed, replay: Replay) -> None:
        victim = self.victims[-1]
        freed = [block for block in event.blocks if replay.ref_counts[block] == 0]
        kept = [block for block in event.blocks if replay.ref_counts[block]]
        self.freed += freed
        self.kept += kept
        action = f"{victim} is preempted" if victim != self.request else f"{victim} preempts itself"
        remark = f"frees {_blocks(freed)}" if freed else "frees none"
        remark += f"; others still hold {_blocks(kept)}" if kept else ""
        self._note(action, remark, replay)
        self.is_over = victim == self.request

    def _note(self, action: str, remark: str, replay: Replay, waiting: tuple[RequestId, ...] | None = None) -> None:
        tables = {request: tuple(state.block_table) for request, state in replay.requests.items()}
        free = tuple(replay.free_blocks)
        cached = frozenset(block for block in free if block in replay.block_hashes)
        waiting = tuple(replay.waiting) if waiting is None else waiting
        self.frames.append(PoolFrame(action, remark, tables, free, cached, waiting))


def _blocks(blocks: Sequence[int], limit: int = 3) -> str:
    if len(blocks) > limit:
        return f"{len(blocks)} blocks"
    return f"block{'s' if len(blocks) > 1 else ''} {', '.join(map(str, blocks))}"
