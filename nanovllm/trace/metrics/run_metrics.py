"""How well a run went: latencies, throughput, cache hits, preemptions, use of the KV pool. One pass over the events.

Times. A token's time is the time of the ``StepFinished`` of its step. Latencies count from a request's ``arrival``, and
only requests that were completed (by ``eos``, ``stop`` or ``length``) enter them: aborted, failed and unfinished ones
(a trace that was cut) are counted apart. Throughput counts every token that came out.

Memory: the token times of the requests in flight; one row a request, unless they are not to be kept; and, however long
the run, a bounded number of latencies and of times of steps (``nanovllm.trace.metrics.latency``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from nanovllm.trace.events import AnyEvent
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.latency import Latency, summarize
from nanovllm.trace.metrics.request_metrics import RequestMetrics
from nanovllm.trace.metrics.slo import Slo, SloAttainment
from nanovllm.trace.metrics.step_times import PhaseTimes


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. Shares are between 0 and 1; a rate or share of nothing is 0, a latency of nothing None."""

    duration_s: float
    """From the first arrival to the end of the last step."""
    busy_s: float
    """Time spent in steps."""

    num_requests: int
    """All that were added; rejected ones are not among them."""
    num_completed: int
    num_aborted: int
    num_failed: int
    num_unfinished: int
    num_rejected: int

    prompt_tokens: int
    """Of the requests that got a token."""
    output_tokens: int
    computed_tokens: int
    """Tokens that the steps computed: without cache hits, with recomputation."""
    recomputed_tokens: int
    """Computed again because a preemption had thrown them away."""

    output_tokens_per_s: float
    total_tokens_per_s: float
    """Prompt and output tokens."""
    requests_per_s: float
    """Completed requests."""

    time_to_first_token_s: Latency | None
    """Arrival to first token."""
    time_per_output_token_s: Latency | None
    """Of each request with more than one token: (last - first) / (tokens - 1)."""
    inter_token_latency_s: Latency | None
    """All gaps between consecutive tokens of a request."""
    end_to_end_s: Latency | None
    """Arrival to last token."""
    queueing_s: Latency | None
    """Arrival to the start of the first step that computed some of the request."""

    looked_up_tokens: int
    """Prompt tokens looked up in the prefix cache, once for each request: when it was first admitted."""
    hit_tokens: int
    hit_rate: float
    readmitted_tokens: int
    """Tokens looked up when preempted requests came back; kept apart, they mostly find their own."""
    readmitted_hit_tokens: int

    num_preemptions: int
    num_preempted_requests: int

    mean_kv_use: float
    """Share of the blocks that tables hold while a step computes; mean over the steps."""
    peak_kv_use: float
    mean_kv_cached_free: float
    """Share of the blocks that are free and still hold reusable content; mean over the steps."""

    num_steps: int
    num_prefill_steps: int
    num_decode_steps: int
    num_mixed_steps: int
    num_empty_steps: int
    """Steps that computed nothing."""
    mean_tokens_per_step: float
    """Over the steps that computed something."""

    step_times: dict[str, PhaseTimes]
    """Phase -> where the time of its steps went, as far as the backend told."""

    slo: SloAttainment | None
    """How many requests got what they are promised; None if no ``Slo`` was given."""

    requests: list[RequestMetrics]
    """A row a request, in the order in which they ended; unfinished ones last. Empty if the collector kept none."""

    def to_dict(self, *, requests: bool = False) -> dict[str, Any]:
        """As plain values, ready for JSON; with the rows of the requests if asked for."""
        figures: dict[str, Any] = msgspec.to_builtins(self)
        if not requests:
            del figures["requests"]
        return figures


def compute_metrics(events: Iterable[AnyEvent], source: object = "events", slo: Slo | None = None) -> Metrics:
    """The figures of a trace, from its header on. Raises ``TraceError`` as ``MetricsCollector`` does; ``source``: what
    it calls the trace, its file if it has one. ``slo``: what requests are promised.

    To follow a run without keeping its events, hand ``MetricsCollector().apply`` to the engine.
    """
    collector = MetricsCollector(source, slo)
    for event in events:
        collector.apply(event)
    return summarize_run(collector)


def summarize_run(collector: MetricsCollector) -> Metrics:
    """The figures of all that a collector has seen so far."""
    records = [*(record for record, _ in collector.ending), *collector.records.values()]
    unfinished = [record.ended(None, record.gaps_s(), collector.deadlines_s) for record in records]
    totals = collector.totals.with_unfinished(unfinished)
    num_completed, outcomes = totals.outcomes["completed"], totals.outcomes
    num_came = totals.num_requests + collector.num_rejected
    steps = collector.num_steps
    num_computing_steps = sum(steps.values()) - steps["empty"]
    duration_s = max(0.0, collector.last_time - totals.first_arrival_s) if totals.num_requests else collector.last_time
    num_block_steps = collector.pool.num_blocks * num_computing_steps
    return Metrics(
        duration_s=duration_s,
        busy_s=collector.busy_s,
        num_requests=totals.num_requests,
        num_completed=num_completed,
        num_aborted=outcomes["aborted"],
        num_failed=outcomes["failed"],
        num_unfinished=outcomes["unfinished"],
        num_rejected=collector.num_rejected,
        prompt_tokens=totals.prompt_tokens,
        output_tokens=totals.output_tokens,
        computed_tokens=collector.computed_tokens,
        recomputed_tokens=totals.recomputed_tokens,
        output_tokens_per_s=_ratio(totals.output_tokens, duration_s),
        total_tokens_per_s=_ratio(totals.prompt_tokens + totals.output_tokens, duration_s),
        requests_per_s=_ratio(num_completed, duration_s),
        time_to_first_token_s=totals.latency("time_to_first_token_s"),
        time_per_output_token_s=totals.latency("time_per_output_token_s"),
        inter_token_latency_s=summarize(collector.gaps),
        end_to_end_s=totals.latency("end_to_end_s"),
        queueing_s=totals.latency("queueing_s"),
        looked_up_tokens=collector.looked_up_tokens,
        hit_tokens=collector.hit_tokens,
        hit_rate=_ratio(collector.hit_tokens, collector.looked_up_tokens),
        readmitted_tokens=collector.readmitted_tokens,
        readmitted_hit_tokens=collector.readmitted_hit_tokens,
        num_preemptions=totals.num_preemptions,
        num_preempted_requests=totals.num_preempted_requests,
        mean_kv_use=_ratio(collector.sum_blocks_in_use, num_block_steps),
        peak_kv_use=_ratio(collector.peak_blocks_in_use, collector.pool.num_blocks),
        mean_kv_cached_free=_ratio(collector.sum_cached_free_blocks, num_block_steps),
        num_steps=sum(steps.values()),
        num_prefill_steps=steps["prefill"],
        num_decode_steps=steps["decode"],
        num_mixed_steps=steps["mixed"],
        num_empty_steps=steps["empty"],
        mean_tokens_per_step=_ratio(collector.computed_tokens, num_computing_steps),
        step_times=collector.step_times.result(),
        slo=None if collector.slo is None else collector.slo.result(num_came, duration_s),
        requests=[*collector.rows, *unfinished] if collector.keeps_requests else [],
    )


def _ratio(amount: float, base: float) -> float:
    return amount / base if base else 0.0
