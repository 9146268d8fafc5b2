"""Whether a trace goes to the end of its run."""

from __future__ import annotations

from collections.abc import Iterable

from nanovllm.trace.events import (
    AnyEvent,
    BlocksAllocated,
    BlocksFreed,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
)


def why_unfinished(events: Iterable[AnyEvent]) -> str | None:
    """What is missing at the end of a trace, as a sentence without its full stop.

    None if the last step is finished and every request has ended and given its blocks back.
    """
    num_events, open_step = 0, -1
    unfinished: dict[RequestId, None] = {}
    holding_blocks: dict[RequestId, None] = {}
    for event in events:
        num_events += 1
        if isinstance(event, StepStarted):
            open_step = event.step
        elif isinstance(event, StepFinished):
            open_step = -1
        elif isinstance(event, BlocksAllocated):
            holding_blocks[event.request] = None
        elif isinstance(event, BlocksFreed):
            holding_blocks.pop(event.request, None)
        elif isinstance(event, RequestAdded):
            unfinished[event.request] = None
        elif isinstance(event, RequestFinished):
            unfinished.pop(event.request, None)
    if num_events <= 1:
        return "the trace holds nothing but its header"
    if open_step >= 0:
        return f"the trace ends within step {open_step}"
    if unfinished:
        return f"the trace ends with unfinished requests: {_some_of(unfinished)}"
    if holding_blocks:
        return f"the trace ends before all blocks are freed: of {_some_of(holding_blocks)}"
    return None


def _some_of(requests: dict[RequestId, None], limit: int = 5) -> str:
    names = [str(request) for request in requests]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
