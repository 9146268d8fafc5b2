"""The figures of several runs taken as one: the replicas of a cluster, say, which began at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nanovllm.trace.events import AnyEvent
from nanovllm.trace.metrics import Metrics, summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector


def merge_runs(runs: Iterable[Iterable[AnyEvent]]) -> Metrics:
    """The figures of all requests of several traces, see ``merge_collectors``."""
    collectors = []
    for events in runs:
        collector = MetricsCollector()
        collector.apply_all(events)
        collectors.append(collector)
    return merge_collectors(collectors)


def merge_collectors(collectors: Sequence[MetricsCollector]) -> Metrics:
    """The figures of all requests that several collectors have seen, as if one run had served them all.

    Percentiles are those of all requests, not means of percentiles. Counts and ``busy_s`` are sums; ``duration_s`` goes
    from the first arrival at any to the last step of any, and rates are over it. Use of the KV pool is a mean over the
    steps of all; the peak is that of the fullest. Rows of requests stand run by run. The runs must have pools of one
    size and the same ``Slo``.
    """
    first = collectors[0]
    assert len({collector.pool.num_blocks for collector in collectors}) == 1, "runs with equal pools are merged"
    keep_requests = all(collector.keeps_requests for collector in collectors)
    whole = MetricsCollector(slo=None if first.slo is None else first.slo.slo, keep_requests=keep_requests)
    whole.pool = first.pool
    for collector in collectors:
        _add(whole, collector)
    return summarize_run(whole)


def _add(whole: MetricsCollector, part: MetricsCollector) -> None:
    unfinished = [*(record for record, _ in part.ending), *part.records.values()]
    whole.ending += [(record, "unfinished") for record in unfinished]
    whole.totals.absorb(part.totals)
    if whole.keeps_requests:
        whole.rows += part.rows
    whole.num_rejected += part.num_rejected
    whole.gaps.update(part.gaps)
    whole.last_time = max(whole.last_time, part.last_time)
    whole.busy_s += part.busy_s
    whole.num_steps.update(part.num_steps)
    whole.step_times.absorb(part.step_times)
    whole.computed_tokens += part.computed_tokens
    whole.looked_up_tokens += part.looked_up_tokens
    whole.hit_tokens += part.hit_tokens
    whole.readmitted_tokens += part.readmitted_tokens
    whole.readmitted_hit_tokens += part.readmitted_hit_tokens
    whole.peak_blocks_in_use = max(whole.peak_blocks_in_use, part.peak_blocks_in_use)
    whole.sum_blocks_in_use += part.sum_blocks_in_use
    whole.sum_cached_free_blocks += part.sum_cached_free_blocks
    if whole.slo is not None and part.slo is not None:
        whole.slo.absorb(part.slo)
