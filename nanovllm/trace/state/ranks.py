"""Who comes first under the policies that rank requests; see ``nanovllm.engine.policies.ranked``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nanovllm.trace.events import RequestAdded, RequestId, TraceStarted

_FIRST_RANKS: dict[str, Callable[[RequestAdded], int]] = {
    "priority": lambda event: event.priority,
    "shortest_first": lambda event: event.prompt_tokens,
}


class Ranks:
    """The ranks of all requests of a run, as its trace tells them."""

    def __init__(self, header: TraceStarted) -> None:
        self._first_rank = _FIRST_RANKS[header.policy]
        ageing = header.config.get("ageing")
        self._ageing = ageing if isinstance(ageing, (int, float)) else 0
        self._ranks: dict[RequestId, tuple[float, int]] = {}
        self._num_added = 0

    @classmethod
    def of(cls, header: TraceStarted) -> Ranks | None:
        """None under a policy that ranks nobody."""
        return cls(header) if header.policy in _FIRST_RANKS else None

    def add(self, event: RequestAdded, num_steps: int) -> None:
        """``num_steps``: how many have been started."""
        self._num_added += 1
        self._ranks[event.request] = self._first_rank(event) + self._ageing * num_steps, self._num_added

    def first(self, requests: Iterable[RequestId]) -> RequestId:
        """The one to be admitted."""
        return min(requests, key=self._ranks.__getitem__)

    def last(self, requests: Iterable[RequestId]) -> RequestId:
        """The one to be preempted."""
        return max(requests, key=self._ranks.__getitem__)
