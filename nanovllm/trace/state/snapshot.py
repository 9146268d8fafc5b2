"""A replay as bytes: small, cheap to keep by the hundred, and independent of the replay it was taken from.

Reference counts are left out: they follow from the block tables. Ended requests never change again, so only their
number is kept; the list itself is shared by all snapshots of a trace.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import msgspec

from nanovllm.trace.events import RequestId, TraceStarted
from nanovllm.trace.replay import Replay
from nanovllm.trace.state.pool import BlockPool
from nanovllm.trace.state.request_state import RequestState


class _Snapshot(msgspec.Struct, array_like=True):
    num_events: int
    step: int
    is_in_step: bool
    time: float
    waiting: list[RequestId]
    running: list[RequestId]
    requests: list[RequestState]
    num_finished: int
    num_rejected: int
    scheduled: list[tuple[RequestId, int]]
    unsettled: list[RequestId]
    releasing: RequestId | None
    free_blocks: list[int]
    block_hashes: list[tuple[int, str]]
    """In order of publication."""


def take(replay: Replay) -> bytes:
    """The state of a replay, for ``restore``."""
    snapshot = _Snapshot(
        num_events=replay.num_events,
        step=replay.step,
        is_in_step=replay.is_in_step,
        time=replay.time,
        waiting=list(replay.waiting),
        running=list(replay.running),
        requests=list(replay.requests.values()),
        num_finished=len(replay.finished),
        num_rejected=replay.num_rejected,
        scheduled=list(replay.scheduled.items()),
        unsettled=[state.request for state in replay.unsettled if state.num_scheduled_tokens],
        releasing=None if replay.releasing is None else replay.releasing.request,
        free_blocks=list(replay.free_blocks),
        block_hashes=list(replay.block_hashes.items()),
    )
    return msgspec.msgpack.encode(snapshot)


def restore(data: bytes, header: TraceStarted, finished: list[RequestState], source: object) -> Replay:
    """A replay in the state that was taken. ``finished``: the ended requests of the trace, in order, at least as far
    as that state."""
    snapshot = msgspec.msgpack.decode(data, type=_Snapshot)
    replay = Replay(source)
    if snapshot.num_events == 0:
        return replay
    replay.start(header)
    replay.num_events = snapshot.num_events
    replay.step, replay.is_in_step, replay.time = snapshot.step, snapshot.is_in_step, snapshot.time
    replay.waiting, replay.running = deque(snapshot.waiting), deque(snapshot.running)
    replay.requests = {state.request: state for state in snapshot.requests}
    replay.finished = finished[: snapshot.num_finished]
    replay.num_rejected = snapshot.num_rejected
    replay.scheduled = dict(snapshot.scheduled)
    replay.unsettled = deque(replay.requests[request] for request in snapshot.unsettled)
    replay.releasing = None if snapshot.releasing is None else replay.requests[snapshot.releasing]
    _fill(replay.pool, snapshot)
    return replay


def _fill(pool: BlockPool, snapshot: _Snapshot) -> None:
    for state in snapshot.requests:
        for block in state.block_table:
            pool.ref_counts[block] += 1
    pool.free_blocks = OrderedDict.fromkeys(snapshot.free_blocks)
    pool.block_hashes = dict(snapshot.block_hashes)
    pool.num_cached_free_blocks = sum(map(pool.block_hashes.__contains__, snapshot.free_blocks))
