"""Service level objectives: what requests are promised, how many got it, and what of the throughput counts then.

Attainment and goodput are DistServe's (Zhong et al., OSDI 2024, https://arxiv.org/abs/2401.09670): a request counts if
it meets all limits at once. The *goodput* of a run is the rate of those that did; that of an engine, in DistServe, the
highest rate of requests, per GPU, at which a given share of them still does, 90% say.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

import msgspec

from nanovllm.errors import ConfigError
from nanovllm.trace.metrics.latency import Distribution
from nanovllm.trace.metrics.request_metrics import RequestMetrics

FLUID_INDEX = 0.9
"""A request with at least this fluidity index is called fluid: Etalon's choice, which wants 99% of them to be."""

SHORTEST_LIMIT_S = 1e-9
"""No clock tells less, and deadlines that follow each other faster could not be counted."""


@dataclass(frozen=True, kw_only=True)
class Slo:
    """A service level objective: a request meets it if it was completed within all limits that are given, in seconds.
    None stands for no limit. Raises ``ConfigError``."""

    time_to_first_token_s: float | None = None
    """Seconds from arrival to the first token, at most."""
    time_per_output_token_s: float | None = None
    """Seconds for each token after the first, at most: (last - first) / (tokens - 1). A single token meets it."""
    inter_token_latency_s: float | None = None
    """Seconds between any two consecutive tokens, at most. A single token meets it."""
    end_to_end_s: float | None = None
    """Seconds from arrival to the last token, at most."""

    def __post_init__(self) -> None:
        for name in LIMITS:
            limit_s = getattr(self, name)
            if limit_s is not None and not _is_duration(limit_s):
                raise ConfigError(name, limit_s, f"a number of seconds, {SHORTEST_LIMIT_S} or more")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are given, by the name of their field."""
        given = {name: getattr(self, name) for name in LIMITS}
        return {name: limit_s for name, limit_s in given.items() if limit_s is not None}

    @property
    def deadlines_s(self) -> tuple[float, float] | None:
        """The prefill and the decode deadline of the fluidity index: the limits of the first and of each further token.
        None unless both are given."""
        if self.time_to_first_token_s is None or self.time_per_output_token_s is None:
            return None
        return self.time_to_first_token_s, self.time_per_output_token_s

    def met_limits(self, request: RequestMetrics) -> list[str]:
        """The limits that a request meets, by name: none unless it was completed."""
        if not _is_served(request):
            return []
        return [name for name, limit_s in self.limits.items() if (_DURATION_OF[name](request) or 0.0) <= limit_s]


LIMITS = tuple(field.name for field in fields(Slo))
"""The limits that an ``Slo`` may have."""

SLO_OPTIONS = {
    "time_to_first_token_s": "slo_ttft",
    "time_per_output_token_s": "slo_tpot",
    "inter_token_latency_s": "slo_itl",
    "end_to_end_s": "slo_e2e",
}
"""What options for them are called, as benchmarks of the field call these limits."""

_DURATION_OF: dict[str, Callable[[RequestMetrics], float | None]] = {
    "time_to_first_token_s": lambda request: request.time_to_first_token_s,
    "time_per_output_token_s": lambda request: request.time_per_output_token_s,
    "inter_token_latency_s": lambda request: request.longest_gap_s,
    "end_to_end_s": lambda request: request.end_to_end_s,
}


class Fluidity(msgspec.Struct, frozen=True, kw_only=True):
    """The fluidity indices of the completed requests, see ``metrics.fluidity``: shares, the lower the worse."""

    count: int
    mean: float
    p50: float
    p10: float
    """A tenth of the requests have less."""
    p1: float
    min: float
    fluid_share: float
    """Share of all requests, counted as in ``SloAttainment``, whose index is ``FLUID_INDEX`` or more."""


class SloAttainment(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of a run met an ``Slo``. Shares are between 0 and 1; that of no requests is 0."""

    limits: dict[str, float]
    """In seconds, by the name of the ``Slo``'s field."""
    num_requests: int
    """All that came. Whoever was not completed met nothing: refused, failed, aborted or unfinished."""
    num_met: int
    """Of them, those that met all limits."""
    attainment: float
    """``num_met`` as a share of ``num_requests``."""
    attainment_by_limit: dict[str, float]
    """The same, for each limit alone."""
    goodput_requests_per_s: float
    """Requests that met all limits, over the duration of the run."""
    goodput_tokens_per_s: float
    """Their output tokens."""
    fluidity: Fluidity | None
    """None unless the limits of the first and of each further token are given, and a request was completed."""


class SloCounter:
    """Counts the requests that meet an ``Slo`` as they end. Memory: a count for each distinct fluidity index."""

    def __init__(self, slo: Slo) -> None:
        self.slo = slo
        self._num_meeting: Counter[str] = Counter()
        self._num_met = 0
        self._good_tokens = 0
        self._fluidity_indices: Counter[float] = Counter()

    def take(self, request: RequestMetrics) -> None:
        """Take in a request that has ended."""
        if not _is_served(request):
            return
        met = self.slo.met_limits(request)
        self._num_meeting.update(met)
        if len(met) == len(self.slo.limits):
            self._num_met += 1
            self._good_tokens += request.output_tokens
        if request.fluidity_index is not None:
            self._fluidity_indices[request.fluidity_index] += 1

    def absorb(self, other: SloCounter) -> None:
        """Take in all requests of another run, to which the same was promised."""
        assert self.slo == other.slo, "what was promised must be the same"
        self._num_meeting.update(other._num_meeting)
        self._num_met += other._num_met
        self._good_tokens += other._good_tokens
        self._fluidity_indices.update(other._fluidity_indices)

    def result(self, num_requests: int, duration_s: float) -> SloAttainment:
        """What is known of a run of ``duration_s`` seconds to which ``num_requests`` came, those included that were not
        taken in: they met nothing."""
        return SloAttainment(
            limits=self.slo.limits,
            num_requests=num_requests,
            num_met=self._num_met,
            attainment=_ratio(self._num_met, num_requests),
            attainment_by_limit={name: _ratio(self._num_meeting[name], num_requests) for name in self.slo.limits},
            goodput_requests_per_s=_ratio(self._num_met, duration_s),
            goodput_tokens_per_s=_ratio(self._good_tokens, duration_s),
            fluidity=_fluidity(self._fluidity_indices, num_requests),
        )


def _fluidity(indices: Counter[float], num_requests: int) -> Fluidity | None:
    if not indices:
        return None
    numbers = Distribution(indices)
    num_fluid = sum(count for index, count in indices.items() if index >= FLUID_INDEX)
    return Fluidity(
        count=numbers.count,
        mean=numbers.mean,
        p50=numbers.percentile(0.5),
        p10=numbers.percentile(0.1),
        p1=numbers.percentile(0.01),
        min=numbers.min,
        fluid_share=_ratio(num_fluid, num_requests),
    )


def _is_served(request: RequestMetrics) -> bool:
    return request.outcome == "completed" and request.output_tokens > 0


def _is_duration(limit_s: object) -> bool:
    if isinstance(limit_s, bool) or not isinstance(limit_s, (int, float)):
        return False
    return SHORTEST_LIMIT_S <= limit_s <= sys.float_info.max


def _ratio(amount: float, base: float) -> float:
    return amount / base if base else 0.0
