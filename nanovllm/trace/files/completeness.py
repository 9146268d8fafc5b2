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
    completeness = Completeness()
    for event in events:
        completeness.take(event)
    return completeness.why_unfinished()


class Completeness:
    """Takes in the events of a trace and knows what is missing, should it end here."""

    def __init__(self) -> None:
        self.num_events = 0
        self._open_step = -1
        self._unfinished: dict[RequestId, None] = {}
        self._holding_blocks: dict[RequestId, None] = {}

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        self.num_events += 1
        if isinstance(event, StepStarted):
            self._open_step = event.step
        elif isinstance(event, StepFinished):
            self._open_step = -1
        elif isinstance(event, BlocksAllocated):
            self._holding_blocks[event.request] = None
        elif isinstance(event, BlocksFreed):
            self._holding_blocks.pop(event.request, None)
        elif isinstance(event, RequestAdded):
            self._unfinished[event.request] = None
        elif isinstance(event, RequestFinished):
            self._unfinished.pop(event.request, None)

    def why_unfinished(self) -> str | None:
        """See the function of this name."""
        if self.num_events <= 1:
            return "the trace holds nothing but its header"
        if self._open_step >= 0:
            return f"the trace ends within step {self._open_step}"
        if self._unfinished:
            return f"the trace ends with unfinished requests: {_some_of(self._unfinished)}"
        if self._holding_blocks:
            return f"the trace ends before all blocks are freed: of {_some_of(self._holding_blocks)}"
        return None


def _some_of(requests: dict[RequestId, None], limit: int = 5) -> str:
    names = [str(request) for request in requests]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
