"""Events back into state: the only code that does so. It knows the events and nothing of the engine.

After each event the replayed state equals that of the engine which emitted it: queues in order, every block table,
reference counts, free list and hash map. Two moments need a rule, because the engine changes its state there without
an event of its own:

- **Results taken in.** ``num_scheduled_tokens`` become part of ``num_cached_tokens`` when the step's results are taken
  in, request by request in the order in which they were scheduled. ``BlocksHashed`` of a request shows that those
  scheduled before it are done (its own follow after it); ``TokensAppended`` or ``StepFinished`` that all are.
- **Requests in hand.** While a decode is being decided, the engine takes requests from the head of ``running``, and
  puts them back before it emits ``DecodeScheduled``. Here they stay in ``running`` all the time.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView
from typing import Any

from nanovllm.errors import ContradictionError
from nanovllm.trace.events import (
    Admitted,
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.state.engine_state import EngineState
from nanovllm.trace.state.laws import BrokenLawError


class Replay(EngineState):
    """The state of an engine, rebuilt event by event: ``replay.apply`` may listen to a live engine."""

    def __init__(self, source: object = "events") -> None:
        """``source``: where the events come from, as errors shall name it: the file's path, if there is one."""
        super().__init__()
        self.source = source
        self.num_events = 0
        """Events applied so far: in a file, the line of the last one."""

    @property
    def free_blocks(self) -> KeysView[int]:
        """The free list, its head first."""
        return self.pool.free_blocks.keys()

    @property
    def ref_counts(self) -> list[int]:
        """Of each block, how many tables hold it."""
        return self.pool.ref_counts

    @property
    def block_hashes(self) -> dict[int, str]:
        """Block -> hash of its content, for those that hold published content."""
        return self.pool.block_hashes

    @property
    def copies(self) -> dict[str, list[int]]:
        """Hash -> the blocks that hold this content, in order of publication. Made anew each time."""
        return self.pool.copies()

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event. Raises ``ContradictionError`` for one that cannot have happened; the replay ends
        there, its state is of no use afterwards."""
        kind = type(event)
        self.num_events += 1
        try:
            if self.releasing is not None and kind is not BlocksFreed:
                raise BrokenLawError("release", f"request {self.releasing.request} still holds its blocks")
            if self.header is None and kind is not TraceStarted:
                raise BrokenLawError("header", "the first event is no trace_started")
            if not self.is_in_step and kind in _ONLY_IN_A_STEP:
                raise BrokenLawError("step", f"{kind.__struct_config__.tag} stands outside of a step")
            _HANDLERS[kind](self, event)
        except BrokenLawError as broken:
            step = self.step if self.is_in_step else None
            raise ContradictionError(self.source, str(broken), self.num_events, broken.law, step) from None


_HANDLERS: dict[type, Callable[[Any, Any], None]] = {
    TraceStarted: EngineState.start,
    RequestAdded: EngineState.add,
    RequestRejected: EngineState.reject,
    StepStarted: EngineState.start_step,
    PrefixHit: EngineState.hit,
    BlocksAllocated: EngineState.allocate,
    BlockEvicted: EngineState.evict,
    Admitted: EngineState.admit,
    ChunkScheduled: EngineState.schedule_chunk,
    DecodeScheduled: EngineState.schedule_decode,
    Preempted: EngineState.preempt,
    Held: EngineState.hold,
    BlocksHashed: EngineState.publish,
    TokensAppended: EngineState.append_tokens,
    RequestFinished: EngineState.finish,
    BlocksFreed: EngineState.free,
    StepFinished: EngineState.finish_step,
}
_ONLY_IN_A_STEP = frozenset(_HANDLERS) - {
    TraceStarted,
    RequestAdded,
    RequestRejected,
    StepStarted,
    RequestFinished,
    BlocksFreed,
    StepFinished,
}
