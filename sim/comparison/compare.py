"""How close a simulation comes to the run that it simulates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import fsum
from operator import attrgetter

import msgspec

from nanovllm.model_spec import ModelSpec
from nanovllm.trace.diff import diff
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksHashed,
    Emit,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TraceStarted,
)
from nanovllm.trace.metrics import summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.latency import Latency, summarize
from nanovllm.trace.metrics.request_metrics import RequestMetrics
from nanovllm.trace.recorder import tee
from sim.comparison.real_run import RealRun
from sim.cost_models import CostModel
from sim.hardware import GPU
from sim.outputs import RecordedOutputs
from sim.simulation import SimulationResult, simulate

LATENCIES = {
    "time to first token": attrgetter("time_to_first_token_s"),
    "time per output token": attrgetter("time_per_output_token_s"),
    "end to end": attrgetter("end_to_end_s"),
}


class LatencyPair(msgspec.Struct, frozen=True):
    """One latency of the real and of the simulated run, over the same requests (or steps)."""

    real: Latency
    simulated: Latency
    mean_absolute_error: float | None
    """Of the single requests (or steps), as a share of the real latency; None where they cannot be paired."""

    def error(self, figure: str) -> float:
        """How far ``figure`` (``mean``, ``p50`` ...) is off, as a share of the real one."""
        real: float = getattr(self.real, figure)
        simulated: float = getattr(self.simulated, figure)
        return simulated / real - 1 if real else 0.0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The two runs side by side. Times in seconds."""

    num_requests: int
    num_unpaired: int
    """Requests that one of the two runs did not complete."""
    num_steps: int
    """Of the simulation."""
    num_extrapolated_steps: int
    """Of them, those larger than all that the cost model was measured on."""
    latencies: dict[str, LatencyPair]
    step_times: dict[str, LatencyPair]
    """By phase: ``decode step`` or, where both runs tell it, ``decode on device``; see ``step_durations``. Empty if the
    real run tells nothing of its steps. (The program's part is not among them: a trace has all of its work, a cost
    model what the device waits for.)"""
    real_tokens_per_s: float
    """Output tokens from the first arrival to the last token."""
    simulated_tokens_per_s: float
    same_decisions: bool | None
    """Where requests come before the steps before which they really came; None if the real decisions are not known."""
    first_difference: str | None
    """In words; None if there is none."""
    loop_time_s: float
    """What the simulation took."""

    @property
    def throughput_error(self) -> float:
        """As a share of the real one; 0 if that is 0."""
        return self.simulated_tokens_per_s / self.real_tokens_per_s - 1 if self.real_tokens_per_s else 0.0


def compare(
    run: RealRun,
    cost_model: CostModel | None,
    *,
    model: str | ModelSpec,
    gpu: str | GPU | None = None,
    by_step: RealRun | None = None,
    emit: Emit | None = None,
) -> tuple[Comparison, list[RequestMetrics]]:
    """Simulate ``run`` and compare; returns the requests of the simulation too.

    ``cost_model``: None for the roofline of ``model`` and ``gpu``. ``by_step``: the same run with arrivals by step; its
    decisions are compared then. ``emit`` is called with each event of the simulation.
    """
    collector = MetricsCollector()
    result = _simulate(run, cost_model, model, gpu, collector.apply if emit is None else tee(collector.apply, emit))
    metrics = summarize_run(collector)
    difference = None
    if run.events:
        again = result if by_step is None else _simulate(by_step, cost_model, model, gpu, None)
        found = diff(with_counted_hashes(_without_refusals(run.events)), with_counted_hashes(again.events))
        difference = None if found is None else found.decision
    pairs = _pairs(run.requests, metrics.requests)
    latencies = {name: _latency_pair([(of(a), of(b)) for a, b in pairs]) for name, of in LATENCIES.items()}
    return Comparison(
        num_requests=len(run.requests),
        num_unpaired=len(run.requests) - len(pairs),
        num_steps=result.num_steps,
        num_extrapolated_steps=result.num_extrapolated_steps,
        latencies={name: pair for name, pair in latencies.items() if pair is not None},
        step_times=_step_times(run.events, result.events) if run.events else {},
        real_tokens_per_s=_tokens_per_s(run.requests),
        simulated_tokens_per_s=_tokens_per_s(metrics.requests),
        same_decisions=difference is None if run.events else None,
        first_difference=difference,
        loop_time_s=result.loop_time_s,
    ), metrics.requests


def _simulate(
    run: RealRun, cost_model: CostModel | None, model: str | ModelSpec, gpu: str | GPU | None, emit: Emit | None
) -> SimulationResult:
    outputs = RecordedOutputs(run.events, run.path, has_prompts_made_up=True) if run.events else None
    config = replace(run.config, seed=0, lookahead=run.lookahead)
    return simulate(
        config,
        run.workload,
        model=model,
        gpu=gpu,
        cost_model=cost_model,
        outputs=outputs,
        record=bool(run.events),
        emit=emit,
    )


# ---- requests ------------------------------------------------------------------------------------------------


def _pairs(
    real: Iterable[RequestMetrics], simulated: Iterable[RequestMetrics]
) -> list[tuple[RequestMetrics, RequestMetrics]]:
    """The requests that both runs completed."""
    by_id: dict[RequestId, RequestMetrics] = {row.request: row for row in simulated if row.outcome == "completed"}
    completed = (row for row in real if row.outcome == "completed")
    return [(row, by_id[row.request]) for row in completed if row.request in by_id]


def _latency_pair(pairs: Sequence[tuple[float | None, float | None]]) -> LatencyPair | None:
    there = [(a, b) for a, b in pairs if a is not None and b is not None]
    real, simulated = summarize(a for a, _ in there), summarize(b for _, b in there)
    if real is None or simulated is None:
        return None
    errors = [abs(b / a - 1) for a, b in there if a > 0]
    return LatencyPair(real, simulated, fsum(errors) / len(errors) if errors else None)


def _tokens_per_s(rows: Sequence[RequestMetrics]) -> float:
    completed = [row for row in rows if row.end_to_end_s is not None]
    if not completed:
        return 0.0
    start_s = min(row.arrival_s for row in completed)
    end_s = max(row.arrival_s + row.end_to_end_s for row in completed if row.end_to_end_s is not None)
    num_tokens = sum(row.output_tokens for row in completed)
    return num_tokens / (end_s - start_s) if end_s > start_s else 0.0


# ---- steps ---------------------------------------------------------------------------------------------------


def _step_times(real: Iterable[AnyEvent], simulated: Iterable[AnyEvent]) -> dict[str, LatencyPair]:
    """Step by step if there are as many of it in both."""
    of_real, of_simulated = step_durations(real), step_durations(simulated)
    pairs = {name: _paired(of_real[name], of_simulated[name]) for name in of_real if name in of_simulated}
    return {name: pair for name, pair in pairs.items() if pair is not None}


def _paired(real: list[float], simulated: list[float]) -> LatencyPair | None:
    if len(real) == len(simulated):
        return _latency_pair(list(zip(real, simulated, strict=True)))
    summaries = summarize(real), summarize(simulated)
    return None if summaries[0] is None or summaries[1] is None else LatencyPair(summaries[0], summaries[1], None)


def step_durations(events: Iterable[AnyEvent]) -> dict[str, list[float]]:
    """Seconds of all steps that computed something, in order; see ``Comparison.step_times``.

    Of a run whose steps were decided ahead, no ``step``: there, one ends when the program looks, which may be late, and
    what it seems to take more is missing to the next.
    """
    durations: dict[str, list[float]] = {}
    started_s, works_ahead = 0.0, False
    for event in events:
        if isinstance(event, TraceStarted):
            works_ahead = bool(event.facts.get("lookahead"))
        elif isinstance(event, StepStarted):
            started_s = event.time
        elif isinstance(event, StepFinished) and event.tokens:
            if not works_ahead or event.device is None:
                durations.setdefault(f"{event.phase} step", []).append(event.time - started_s)
            if event.device is not None:
                durations.setdefault(f"{event.phase} on device", []).append(event.device)
    return durations


# ---- decisions -----------------------------------------------------------------------------------------------


def _without_refusals(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Requests that can never run are no part of the workload: a trace does not tell how long they were."""
    return [event for event in events if not isinstance(event, RequestRejected)]


def with_counted_hashes(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The same events with contents named in the order of their appearance: tokens that were made up have hashes of
    their own."""
    names: dict[str, str] = {}

    def name_of(block_hash: str) -> str:
        return names.setdefault(block_hash, f"{len(names):016x}")

    named: list[AnyEvent] = []
    for event in events:
        if isinstance(event, BlocksHashed):
            event = msgspec.structs.replace(event, hashes=[name_of(block_hash) for block_hash in event.hashes])
        elif isinstance(event, BlockEvicted):
            event = msgspec.structs.replace(event, hash=name_of(event.hash))
        named.append(event)
    return named
