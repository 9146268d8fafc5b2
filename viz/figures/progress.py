"""How far a prompt is computed, chunk by chunk: what the cache gave, what each step adds, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanovllm.errors import UserError
from nanovllm.trace.events import AnyEvent, ChunkScheduled, Preempted, PrefixHit, RequestId
from nanovllm.trace.replay import Replay
from viz.figures.history import Source, events_of


@dataclass(frozen=True)
class ProgressStep:
    """The counters of a request in one step, when its chunk has been scheduled and is not yet computed."""

    step: int
    num_cached_tokens: int
    num_scheduled_tokens: int
    num_remaining_tokens: int


@dataclass(frozen=True)
class PromptProgress:
    """One prefill of a request: ``num_reused_tokens`` + the scheduled tokens of all steps = ``num_tokens``, if the
    trace goes that far."""

    request: RequestId
    num_tokens: int
    num_reused_tokens: int
    block_size: int
    block_table: tuple[int, ...]
    steps: tuple[ProgressStep, ...]


def prompt_progress_data(source: Source, request: RequestId | None = None, admission: int = 0) -> PromptProgress:
    """Replay the trace and read a request's counters whenever a chunk of it is scheduled.

    ``request`` None: the first whose prompt is cut into chunks, else the first of all. ``admission``: 0 for its first
    prefill, 1 for the one after its first preemption, and so on. Raises ``UserError`` if the trace has none such.
    """
    name, events = events_of(source)
    request = _chunked_request(events) if request is None else request
    replay = Replay(name)
    num_admissions, num_reused_tokens = 0, 0
    steps: list[ProgressStep] = []
    progress: PromptProgress | None = None
    for event in events:
        replay.apply(event)
        if not isinstance(event, (PrefixHit, ChunkScheduled, Preempted)) or event.request != request:
            continue
        state = replay.requests[request]
        if isinstance(event, Preempted):
            num_admissions += 1
        elif num_admissions == admission and isinstance(event, PrefixHit):
            num_reused_tokens = state.num_cached_tokens
        elif num_admissions == admission:
            cached, scheduled = state.num_cached_tokens, state.num_scheduled_tokens
            steps.append(ProgressStep(replay.step, cached, scheduled, state.num_tokens - cached - scheduled))
            progress = PromptProgress(
                request,
                state.num_tokens,
                num_reused_tokens,
                replay.pool.block_size,
                tuple(state.block_table),
                tuple(steps),
            )
    if request is None:
        raise UserError(f"{name}: no request is ever prefilled in this trace")
    if progress is None:
        raise UserError(f"{name}: the trace has no prefill {admission} of request {request!r} (they count from 0)")
    return progress


def _chunked_request(events: Sequence[AnyEvent]) -> RequestId | None:
    chunks = [event for event in events if isinstance(event, ChunkScheduled)]
    return next((chunk.request for chunk in chunks if chunk.remaining), chunks[0].request if chunks else None)
