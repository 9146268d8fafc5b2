"""Writes a ``History``: follows the replayer through the events, and notes who did what when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nanovllm.errors import ContradictionError, TraceError
from nanovllm.trace.events import (
    AnyEvent,
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
    RequestId,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from nanovllm.trace.replay import Replay
from viz.figures.history import (
    CACHED,
    FREE,
    SHARED,
    Activity,
    BlockChanges,
    Chunk,
    History,
    Lifeline,
    Source,
    Steps,
    events_of,
    problem_of,
    without_place,
)


def history_of(source: Source | History) -> History:
    """Read a trace into a history; a history is returned as it is, so that one pass serves several figures.

    A trace that contradicts itself is read up to there; then ``History.problem`` says so. Raises ``TraceError`` if that
    leaves no step.
    """
    if isinstance(source, History):
        return source
    name, events = events_of(source)
    historian = _Historian(name)
    try:
        for event in events:
            historian.apply(event)
    except ContradictionError as error:
        if not historian.has_steps:
            raise
        return historian.close(f"contradiction: {without_place(str(error), name)}")
    return historian.close(problem_of(source))


class _Historian:
    def __init__(self, source: str) -> None:
        self.replay = Replay(source)
        self.steps = _StepColumns()
        self.requests: list[Lifeline] = []
        self.block_changes: list[tuple[int, int, int]] = []
        self._rows: dict[RequestId, int] = {}
        self._holders: dict[int, list[int]] = {}
        self._is_deciding = False
        self._decision = _Decision()
        self._last_decision = _Decision()
        self._handlers: dict[type, Callable[[Any], None]] = {
            RequestAdded: self._add,
            StepStarted: self._start_step,
            PrefixHit: self._hit,
            BlocksAllocated: self._allocate,
            ChunkScheduled: self._schedule_chunk,
            DecodeScheduled: self._schedule_decode,
            Preempted: self._preempt,
            Held: self._hold,
            RequestFinished: self._finish,
            BlocksFreed: self._free,
            StepFinished: self._finish_step,
        }

    @property
    def _position(self) -> int:
        """From where on a change that happens now shows: this step while it is decided, then the next one."""
        return len(self.steps.rows)

    @property
    def has_steps(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self.steps.rows) or self._is_deciding

    def apply(self, event: AnyEvent) -> None:
        kind = type(event)
        if self._is_deciding and kind in _AFTER_THE_DECISIONS:
            self._compute()
        self.replay.apply(event)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(event)

    def close(self, problem: str | None) -> History:
        replay = self.replay
        if self._is_deciding:
            self._compute()
        if replay.is_in_step:
            self.steps.ends.append((replay.time, False))
        if not self.steps.rows or replay.header is None:
            raise TraceError(replay.source, "there is nothing to draw: no step was run")
        changes = np.array(self.block_changes, dtype=np.int64).reshape(-1, 3).T
        return History(
            str(replay.source),
            replay.header,
            self.steps.close(),
            self.requests,
            replay.num_rejected,
            BlockChanges(*changes),
            problem,
        )

    # ---- steps -----------------------------------------------------------------------------------------------

    def _start_step(self, event: StepStarted) -> None:
        self._is_deciding = True
        self._last_decision, self._decision = self._decision, _Decision()

    def _compute(self) -> None:
        """The step is decided: note how things stand."""
        replay, decision = self.replay, self._decision
        self._is_deciding = False
        if decision.differs_from(self._last_decision):
            self._note_activities()
        self.steps.rows.append(
            (
                replay.step,
                replay.time,
                len(replay.waiting),
                len(replay.running),
                replay.pool.num_blocks_in_use,
                replay.pool.num_cached_free_blocks,
                sum(decision.chunks.values()),
                len(decision.decodes),
                decision.num_preemptions,
            )
        )

    def _finish_step(self, event: StepFinished) -> None:
        is_idle = not self.replay.waiting and not self.replay.running
        self.steps.ends.append((event.time, is_idle))

    # ---- requests --------------------------------------------------------------------------------------------

    def _note_activities(self) -> None:
        decision, replay = self._decision, self.replay
        decoding = set(decision.decodes)
        for request in replay.running:
            if request in decoding:
                self._set(request, Activity.DECODE)
            else:
                self._set(request, self._unless_decoding(request, Activity.IDLE))
        for request in replay.waiting:
            if request in decision.chunks or self._activity(request) is not Activity.PREEMPTED:
                self._set(request, self._unless_decoding(request, Activity.WAITING))

    def _unless_decoding(self, request: RequestId, otherwise: Activity) -> Activity:
        if request in self._decision.chunks:
            return Activity.PREFILL
        return Activity.HELD if request in self._decision.holds else otherwise

    def _activity(self, request: RequestId) -> Activity:
        return self.requests[self._rows[request]].changes[-1][1]

    def _set(self, request: RequestId, activity: Activity) -> None:
        changes, position = self.requests[self._rows[request]].changes, self._position
        if changes and changes[-1][0] == position:
            changes.pop()
        if not changes or changes[-1][1] is not activity:
            changes.append((position, activity))

    def _add(self, event: RequestAdded) -> None:
        self._rows[event.request] = len(self.requests)
        self.requests.append(Lifeline(event.request, event.arrival, event.prompt_tokens, event.max_tokens))
        self._set(event.request, Activity.WAITING)

    def _schedule_chunk(self, event: ChunkScheduled) -> None:
        self._decision.chunks[event.request] = event.tokens
        chunk = Chunk(self._position, event.start, event.tokens, event.remaining)
        self.requests[self._rows[event.request]].chunks.append(chunk)

    def _schedule_decode(self, event: DecodeScheduled) -> None:
        self._decision.decodes = event.requests

    def _hold(self, event: Held) -> None:
        self._decision.holds[event.request] = event.reason
        holds, position = self.requests[self._rows[event.request]].holds, self._position
        if holds and holds[-1][1:] == (position - 1, event.reason):
            holds[-1] = (holds[-1][0], position, event.reason)
        else:
            holds.append((position, position, event.reason))

    def _preempt(self, event: Preempted) -> None:
        self._decision.num_preemptions += 1
        self.requests[self._rows[event.request]].preemptions.append(self._position)
        self._set(event.request, Activity.PREEMPTED)

    def _finish(self, event: RequestFinished) -> None:
        life = self.requests[self._rows[event.request]]
        life.end, life.finish_reason = self._position, event.reason

    # ---- blocks ----------------------------------------------------------------------------------------------

    def _hit(self, event: PrefixHit) -> None:
        row = self._rows[event.request]
        self.requests[row].hits.append((self._position, event.tokens))
        for block in event.blocks:
            self._holders.setdefault(block, []).append(row)
            self._note_block(block)

    def _allocate(self, event: BlocksAllocated) -> None:
        row = self._rows[event.request]
        for block in event.blocks:
            self._holders[block] = [row]
            self.block_changes.append((self._position, block, row))

    def _free(self, event: BlocksFreed) -> None:
        row = self._rows[event.request]
        for block in event.blocks:
            self._holders[block].remove(row)
            self._note_block(block)

    def _note_block(self, block: int) -> None:
        num_holders = self.replay.ref_counts[block]
        if num_holders == 1:
            owner = self._holders[block][0]
        elif num_holders:
            owner = SHARED
        else:
            owner = CACHED if block in self.replay.block_hashes else FREE
        self.block_changes.append((self._position, block, owner))


_AFTER_THE_DECISIONS = frozenset({BlocksHashed, TokensAppended, RequestFinished, StepFinished})


class _Decision:
    """What one step decided."""

    __slots__ = ("chunks", "decodes", "holds", "num_preemptions")

    def __init__(self) -> None:
        self.chunks: dict[RequestId, int] = {}
        self.decodes: list[RequestId] = []
        self.holds: dict[RequestId, str] = {}
        self.num_preemptions = 0

    def differs_from(self, last: _Decision) -> bool:
        """Whether any request may do something else than in the step before; most decode steps repeat each other."""
        return bool(
            self.chunks
            or last.chunks
            or self.num_preemptions
            or self.decodes != last.decodes
            or self.holds.keys() != last.holds.keys()
        )


class _StepColumns:
    """Gathers the rows of ``Steps``."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        self.ends: list[tuple[float, bool]] = []

    def close(self) -> Steps:
        columns = np.array(self.rows, dtype=np.float64).T
        ends, is_idle_after = np.array(self.ends, dtype=np.float64).T
        number, start_s, *counts = columns
        return Steps(
            number.astype(np.int64),
            start_s,
            ends,
            is_idle_after.astype(np.bool_),
            *(count.astype(np.int64) for count in counts),
        )
