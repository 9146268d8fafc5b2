"""Gathers what ``metrics`` sums up, event by event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from nanovllm.errors import TraceError
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.metrics.latency import MAX_DISTINCT, coarsened
from nanovllm.trace.metrics.pool_use import PoolUse
from nanovllm.trace.metrics.request_metrics import OUTCOMES, RequestMetrics, RequestRecord
from nanovllm.trace.metrics.request_totals import RequestTotals
from nanovllm.trace.metrics.slo import Slo, SloCounter
from nanovllm.trace.metrics.step_times import StepTimesCollector
from nanovllm.trace.state.laws import BrokenLawError
from nanovllm.trace.state.pool import read_pool_size


class MetricsCollector:
    """Takes in the events of one run, in order. Times, which it measures, must make sense; else it believes the events
    as far as it can: whether they keep to all laws, ``replay`` and ``check`` say."""

    def __init__(self, source: object = "events", slo: Slo | None = None, *, keep_requests: bool = True) -> None:
        """``source``: where the events come from, as errors shall name it: the file's path, if there is one. ``slo``:
        what requests are promised; counted in ``slo``. ``keep_requests``: without it, memory does not grow with the
        number of requests, and ``rows`` stays empty."""
        self.slo = None if slo is None else SloCounter(slo)
        self.deadlines_s = None if slo is None else slo.deadlines_s
        """Of prefill and decode, for the fluidity index."""
        self.records: dict[RequestId, RequestRecord] = {}
        """The requests that have not ended."""
        self.totals = RequestTotals()
        """Of those that have."""
        self.keeps_requests = keep_requests
        self.rows: list[RequestMetrics] = []
        """Those that have, in order, if they are kept."""
        self.ending: list[tuple[RequestRecord, str]] = []
        """Those that ended in the current step, with the reason: when the step ends, they have."""
        self.num_rejected = 0
        self.gaps: Counter[float] = Counter()
        """Inter-token latency in seconds -> how often, of completed requests."""

        self.last_time = 0.0
        """End of the last step, in seconds."""
        self.busy_s = 0.0
        self.num_steps: Counter[str] = Counter()
        """By phase; ``empty`` for those that computed nothing."""
        self.step_times = StepTimesCollector()
        self.computed_tokens = 0
        self.looked_up_tokens = 0
        self.hit_tokens = 0
        self.readmitted_tokens = 0
        self.readmitted_hit_tokens = 0

        self.pool = PoolUse(0)
        self.peak_blocks_in_use = 0
        self.sum_blocks_in_use = 0
        """Over the steps that computed something, as that they computed with."""
        self.sum_cached_free_blocks = 0

        self._now = 0.0
        self._is_in_step = False
        self._step_start = 0.0
        self._waiting_token_times: list[list[float]] = []
        self._use_in_step = (0, 0)

        self._source = source
        self._num_events = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            TraceStarted: self._start,
            RequestAdded: self._add,
            RequestRejected: self._reject,
            StepStarted: self._start_step,
            PrefixHit: self._hit,
            BlocksAllocated: self._allocate,
            BlockEvicted: self.pool.evict,
            ChunkScheduled: self._schedule_chunk,
            DecodeScheduled: self._schedule_decode,
            Preempted: self._preempt,
            BlocksHashed: self._publish,
            TokensAppended: self._append_tokens,
            RequestFinished: self._finish,
            BlocksFreed: self._free,
            StepFinished: self._finish_step,
        }

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event. Raises ``TraceError`` for one that names what is not there."""
        self.apply_all((event,))

    def apply_all(self, events: Iterable[AnyEvent]) -> None:
        """Take in several events, which is faster than one by one. Raises as ``apply`` does."""
        handlers, num_before = self._handlers, self._num_events
        number = num_before  # of the event, as errors shall tell it
        try:
            for number, event in enumerate(events, num_before + 1):  # noqa: B007 - see above
                handler = handlers.get(type(event))
                if handler is not None:  # else of no interest
                    handler(event)
        except KeyError as error:
            raise TraceError(self._source, f"names {error.args[0]!r}, which is not there", number) from None
        except BrokenLawError as broken:
            raise TraceError(self._source, str(broken), number) from None
        self._num_events = number

    # ---- requests and steps ----------------------------------------------------------------------------------

    def _start(self, event: TraceStarted) -> None:
        num_blocks, _ = read_pool_size(event)
        self.pool = PoolUse(num_blocks)
        self._handlers[BlockEvicted] = self.pool.evict  # there is one for nearly each block: no call in between

    def _advance(self, time: float) -> None:
        if time < self._now:
            raise BrokenLawError("time", f"time runs backwards, from {self._now} s to {time} s")
        self._now = time

    def _add(self, event: RequestAdded) -> None:
        self._advance(event.time)
        if not 0 <= event.arrival <= event.time:
            told = f"request {event.request} came at {event.arrival} s"
            where = "before the start" if event.arrival < 0 else f"and was handed over at {event.time} s"
            raise BrokenLawError("arrival", f"{told}, {where}")
        self.records[event.request] = RequestRecord(event.request, event.arrival, event.prompt_tokens)

    def _reject(self, event: RequestRejected) -> None:
        self.num_rejected += 1

    def _start_step(self, event: StepStarted) -> None:
        self._advance(event.time)
        self._is_in_step = True
        self._step_start = event.time

    def _schedule_chunk(self, event: ChunkScheduled) -> None:
        record, end = self.records[event.request], event.start + event.tokens
        if record.first_scheduled is None:
            record.first_scheduled = self._step_start
            record.hit_tokens = event.start
            self.hit_tokens += event.start
            self.looked_up_tokens += record.prompt_tokens
        elif record.is_preempted:
            record.is_preempted = False
            self.readmitted_hit_tokens += event.start
            self.readmitted_tokens += end + event.remaining
        record.recomputed_tokens += max(0, min(end, record.lost_tokens) - event.start)
        self._use_in_step = self.pool.num_blocks_in_use, self.pool.num_cached_free_blocks

    def _schedule_decode(self, event: DecodeScheduled) -> None:
        self._use_in_step = self.pool.num_blocks_in_use, self.pool.num_cached_free_blocks

    def _preempt(self, event: Preempted) -> None:
        record = self.records[event.request]
        record.num_preemptions += 1
        record.is_preempted = True
        record.lost_tokens = max(record.lost_tokens, event.tokens_lost)

    def _append_tokens(self, event: TokensAppended) -> None:
        records = self.records
        self._waiting_token_times = [records[request].token_times for request in event.requests]

    def _finish(self, event: RequestFinished) -> None:
        if event.reason not in OUTCOMES:
            raise BrokenLawError(
                "reason", f"request {event.request} ends for {event.reason!r}, not one of {', '.join(OUTCOMES)}"
            )
        self.ending.append((self.records.pop(event.request), event.reason))
        if not self._is_in_step:
            self._settle_ending()

    def _finish_step(self, event: StepFinished) -> None:
        time = self.last_time = event.time
        self._advance(time)
        for token_times in self._waiting_token_times:
            token_times.append(time)
        self._waiting_token_times = []
        self._settle_ending()
        self._is_in_step = False
        self.busy_s += time - self._step_start
        self.num_steps[event.phase if event.tokens else "empty"] += 1
        if event.tokens:
            self.computed_tokens += event.tokens
            self.step_times.take(event.phase, time - self._step_start, event.host, event.device)
            blocks_in_use, cached_free_blocks = self._use_in_step
            self.sum_blocks_in_use += blocks_in_use
            self.sum_cached_free_blocks += cached_free_blocks
            self.peak_blocks_in_use = max(self.peak_blocks_in_use, blocks_in_use)

    def _settle_ending(self) -> None:
        for record, reason in self.ending:
            gaps_s = record.gaps_s()
            row = record.ended(reason, gaps_s, self.deadlines_s)
            self.totals.take(row)
            if self.keeps_requests:
                self.rows.append(row)
            if self.slo is not None:
                self.slo.take(row)
            if row.outcome == "completed":
                self.gaps.update(gaps_s)
        self.ending = []
        if len(self.gaps) > MAX_DISTINCT:
            self.gaps = coarsened(self.gaps)

    # ---- blocks ----------------------------------------------------------------------------------------------

    def _hit(self, event: PrefixHit) -> None:
        self.pool.hit(event.blocks)

    def _allocate(self, event: BlocksAllocated) -> None:
        self.pool.allocate(event.blocks)

    def _publish(self, event: BlocksHashed) -> None:
        self.pool.publish(event.blocks)

    def _free(self, event: BlocksFreed) -> None:
        self.pool.release(event.blocks)
