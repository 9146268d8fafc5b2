"""What is counted over a run, one row a frame: when it was, what it computed, and totals since the start."""

from __future__ import annotations

from array import array

from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    ChunkScheduled,
    Preempted,
    RequestFinished,
    StepStarted,
    TokensAppended,
)
from nanovllm.trace.replay import Replay
from viz.web.request_rows import RequestRows, nanoseconds

_MOMENT = ("step", "kind", "start_ns", "end_ns", "prefill_tokens", "decode_tokens")
_LEVELS = ("waiting", "running", "free", "cached", "in_use")
_TOTALS = ("hit_tokens", "looked_up_tokens", "preemptions", "evictions", "generated_tokens", "finished")


class Counters:
    """Follows a replay and writes down one row a frame. ``free`` + ``cached`` + ``in_use`` are all blocks."""

    def __init__(self) -> None:
        self.columns = {name: array("q") for name in (*_MOMENT, *_LEVELS, *_TOTALS)}
        self._totals = dict.fromkeys(_TOTALS, 0)
        self._start_s: float | None = None
        """When the current step started, None outside of a step."""
        self._prefill_tokens = 0

    def observe(self, event: AnyEvent, rows: RequestRows) -> None:
        """Count what the event tells."""
        totals = self._totals
        if isinstance(event, StepStarted):
            self._start_s = event.time
        elif isinstance(event, ChunkScheduled):
            self._prefill_tokens += event.tokens
            row = rows.by_id[event.request]
            if not row.was_looked_up:  # once a request: neither its chunks nor its return after a preemption
                row.was_looked_up = True
                totals["hit_tokens"] += event.start
                totals["looked_up_tokens"] += row.state.num_prompt_tokens
        elif isinstance(event, Preempted):
            totals["preemptions"] += 1
        elif isinstance(event, BlockEvicted):
            totals["evictions"] += 1
        elif isinstance(event, TokensAppended):
            totals["generated_tokens"] += len(event.tokens)
        elif isinstance(event, RequestFinished):
            totals["finished"] += 1

    def end_frame(self, kind: int, replay: Replay) -> None:
        """Add the frame's row."""
        pool, is_in_step = replay.pool, self._start_s is not None
        num_tokens = sum(replay.scheduled.values()) if is_in_step else 0
        row = {
            "step": replay.step if is_in_step else replay.step + 1,
            "kind": kind,
            "start_ns": nanoseconds(replay.time if self._start_s is None else self._start_s),
            "end_ns": nanoseconds(replay.time),
            "prefill_tokens": self._prefill_tokens,
            "decode_tokens": num_tokens - self._prefill_tokens,
            "waiting": len(replay.waiting),
            "running": len(replay.running),
            "free": len(pool.free_blocks) - pool.num_cached_free_blocks,
            "cached": pool.num_cached_free_blocks,
            "in_use": pool.num_blocks_in_use,
            **self._totals,
        }
        for name, value in row.items():
            self.columns[name].append(value)
        self._start_s, self._prefill_tokens = None, 0
