"""What all requests of a run add up to, as they end: all that is told of them when they are not kept one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from copy import copy

from nanovllm.trace.metrics.latency import Durations, Latency
from nanovllm.trace.metrics.request_metrics import RequestMetrics

LATENCIES = ("time_to_first_token_s", "time_per_output_token_s", "end_to_end_s", "queueing_s")
"""Fields of ``RequestMetrics`` that are summed up over the completed requests."""


class RequestTotals:
    """Takes in requests that have ended."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.first_arrival_s = math.inf
        self.prompt_tokens = 0
        """Of the requests that got a token."""
        self.output_tokens = 0
        self.recomputed_tokens = 0
        self.num_preemptions = 0
        self.num_preempted_requests = 0
        self._latencies = {name: Durations() for name in LATENCIES}

    @property
    def num_requests(self) -> int:
        """All that were taken in."""
        return self.outcomes.total()

    def latency(self, name: str) -> Latency | None:
        """One of ``LATENCIES``, of the completed requests."""
        return self._latencies[name].summarize()

    def take(self, request: RequestMetrics) -> None:
        """Take in one more."""
        self.outcomes[request.outcome] += 1
        self.first_arrival_s = min(self.first_arrival_s, request.arrival_s)
        self.prompt_tokens += request.prompt_tokens if request.output_tokens else 0
        self.output_tokens += request.output_tokens
        self.recomputed_tokens += request.recomputed_tokens
        self.num_preemptions += request.num_preemptions
        self.num_preempted_requests += request.num_preemptions > 0
        if request.outcome == "completed":
            for name, durations in self._latencies.items():
                if (duration_s := getattr(request, name)) is not None:
                    durations.append(duration_s)

    def absorb(self, other: RequestTotals) -> None:
        """Take in all requests of another run."""
        self.outcomes.update(other.outcomes)
        self.first_arrival_s = min(self.first_arrival_s, other.first_arrival_s)
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.recomputed_tokens += other.recomputed_tokens
        self.num_preemptions += other.num_preemptions
        self.num_preempted_requests += other.num_preempted_requests
        for name, durations in self._latencies.items():
            durations.absorb(other._latencies[name])

    def with_unfinished(self, requests: Iterable[RequestMetrics]) -> RequestTotals:
        """These and some that have not ended: they have no part in the latencies, which are shared."""
        totals = copy(self)
        totals.outcomes = self.outcomes.copy()
        for request in requests:
            assert request.outcome != "completed", f"request {request.request!r} has ended"
            totals.take(request)
        return totals
