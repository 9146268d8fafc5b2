"""What a trace says about each single request."""

from __future__ import annotations

from operator import sub
from typing import Literal

import msgspec

from nanovllm.trace.events import RequestId
from nanovllm.trace.metrics.fluidity import count_deadlines

Outcome = Literal["completed", "aborted", "failed", "unfinished"]

OUTCOMES: dict[str, Outcome] = {
    "eos": "completed",
    "stop": "completed",
    "length": "completed",
    "aborted": "aborted",
    "error": "failed",
}
"""What the reason of a ``RequestFinished`` says of the request."""


class RequestMetrics(msgspec.Struct, frozen=True):
    """One request. Durations are None where they do not exist (yet); they count from ``arrival_s``."""

    request: RequestId
    outcome: Outcome
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    hit_tokens: int
    """Prompt tokens found in the prefix cache when it was first admitted."""
    recomputed_tokens: int
    """Tokens computed again after preemptions."""
    num_preemptions: int
    queueing_s: float | None
    """Arrival to the start of the first step that computed some of it."""
    time_to_first_token_s: float | None
    time_per_output_token_s: float | None
    """(last token - first token) / (output tokens - 1); None for a single token."""
    end_to_end_s: float | None
    """Arrival to the last token; None unless completed."""
    longest_gap_s: float | None = None
    """The longest time between two of its tokens; None for a single token."""
    fluidity_index: float | None = None
    """See ``nanovllm.trace.metrics.fluidity``; None unless deadlines are given and there is a token."""


class RequestRecord(msgspec.Struct, gc=False):
    """A request while it is followed."""

    request: RequestId
    arrival: float
    prompt_tokens: int
    first_scheduled: float | None = None
    hit_tokens: int = 0
    num_preemptions: int = 0
    is_preempted: bool = False
    """Preempted and not admitted again yet."""
    lost_tokens: int = 0
    """The most tokens it had computed when it was preempted."""
    recomputed_tokens: int = 0
    token_times: list[float] = []

    def gaps_s(self) -> list[float]:
        """The times between its tokens."""
        return [*map(sub, self.token_times[1:], self.token_times)]

    def ended(
        self, reason: str | None, gaps_s: list[float], deadlines_s: tuple[float, float] | None = None
    ) -> RequestMetrics:
        """The result. ``reason``: as in ``RequestFinished``, None if it did not end. ``gaps_s``: as ``gaps_s()`` tells
        them. ``deadlines_s``: of prefill and decode, for the fluidity index."""
        times, outcome = self.token_times, OUTCOMES[reason] if reason is not None else "unfinished"
        spread = times[-1] - times[0] if times else 0.0
        return RequestMetrics(
            request=self.request,
            outcome=outcome,
            arrival_s=self.arrival,
            prompt_tokens=self.prompt_tokens,
            output_tokens=len(times),
            hit_tokens=self.hit_tokens,
            recomputed_tokens=self.recomputed_tokens,
            num_preemptions=self.num_preemptions,
            queueing_s=None if self.first_scheduled is None else self.first_scheduled - self.arrival,
            time_to_first_token_s=times[0] - self.arrival if times else None,
            time_per_output_token_s=spread / (len(times) - 1) if len(times) > 1 else None,
            end_to_end_s=times[-1] - self.arrival if times and outcome == "completed" else None,
            longest_gap_s=max(gaps_s, default=None),
            fluidity_index=None if deadlines_s is None else self._fluidity_index(*deadlines_s),
        )

    def _fluidity_index(self, prefill_deadline_s: float, decode_deadline_s: float) -> float | None:
        deadlines = count_deadlines(self.token_times, self.arrival, prefill_deadline_s, decode_deadline_s)
        return None if deadlines is None else deadlines.fluidity_index
