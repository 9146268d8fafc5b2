"""Runs of this engine, from nothing but their traces: options, arrivals, answers, and which prompts share what."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from nanovllm.config import Config
from nanovllm.errors import ConfigError, TraceError, UserError
from nanovllm.trace.events import (
    AnyEvent,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.metrics import compute_metrics
from sim.comparison.arrivals import read_arrivals
from sim.comparison.prompts import prompts_of
from sim.comparison.real_run import RealRun
from sim.outputs import RecordedOutputs
from sim.workload import WorkloadRequest

_NAMES = {"block_size": "kvcache_block_size", "num_blocks": "num_kvcache_blocks"}
"""Options that the header calls otherwise than ``Config``."""
_FACTS = ("tensor_parallel_size", "dtype")
"""Options of the backend, on which times depend."""


def read_traced_run(path: str | Path, *, by_step: bool = False) -> RealRun:
    """The run that a trace tells of. ``by_step``: requests come before the steps before which they came, whatever the
    time; so they do in any case if the run itself had them come by step (see ``sim.comparison.arrivals``).

    Prompts are made up, but share the blocks that the real ones shared. Requests that came before the engine was ready
    count as having come when it was: what its set-up takes is nobody's latency. Raises ``UserError`` for a file that
    is no trace of a whole run.
    """
    trace = read_trace(path)
    if trace.problem is not None:
        raise UserError(f"{trace.problem}: only a run that came to its end can be compared")
    recorded = RecordedOutputs(trace.events, path)  # raises for what contradicts itself
    events, header = _from_its_start(trace.events), trace.header
    _check_parts(path, events)
    requests = compute_metrics(events, path).requests
    if not requests:
        raise TraceError(path, "holds no request")
    return RealRun(
        path=Path(path),
        requests=requests,
        workload=_workload(path, events, recorded.eos_token_ids, by_step),
        config=_config(path, header, recorded.eos_token_ids),
        lookahead=bool(header.facts.get("lookahead", False)),
        events=events,
    )


def _config(path: str | Path, header: TraceStarted, eos_token_ids: tuple[int, ...]) -> Config:
    known = {_NAMES.get(name, name): value for name, value in header.config.items()}
    known |= {name: header.facts[name] for name in _FACTS if name in header.facts}
    known["eos"] = eos_token_ids or -1
    try:
        return Config.from_options(**known, policy=header.policy, model=header.model)
    except (ConfigError, TypeError) as error:
        raise TraceError(path, f"its header has options that are not known here ({error})", 1) from None


def _from_its_start(events: list[AnyEvent]) -> list[AnyEvent]:
    start_s = next((event.time for event in events if isinstance(event, RequestAdded)), 0.0)
    return [
        msgspec.structs.replace(event, arrival=start_s)
        if isinstance(event, RequestAdded) and 0 <= event.arrival < start_s
        else event
        for event in events
    ]


def _check_parts(path: str | Path, events: list[AnyEvent]) -> None:
    for number, event in enumerate(events, start=1):
        if isinstance(event, StepFinished) and min(event.host or 0.0, event.device or 0.0) < 0:
            raise TraceError(
                path, f"step {event.step}: host={event.host}, device={event.device}: times are from 0", number
            )


def _workload(
    path: str | Path, events: list[AnyEvent], eos_token_ids: Collection[int], by_step: bool
) -> list[WorkloadRequest]:
    prompts, ignoring = prompts_of(events), _those_that_ignore_eos(events, eos_token_ids)
    arrivals = read_arrivals(events, by_step=by_step)
    workload: dict[RequestId, WorkloadRequest] = {}
    for number, event in enumerate(events, start=1):
        if not isinstance(event, RequestAdded):
            continue
        if event.request in workload:
            problem = f"two requests are called {event.request!r}: they cannot be told apart"
            raise TraceError(path, problem, number)
        arrival, arrival_step = arrivals[event.request]
        try:
            workload[event.request] = WorkloadRequest(
                id=event.request,
                max_tokens=event.max_tokens,
                prompt=prompts[event.request],
                arrival=arrival,
                arrival_step=arrival_step,
                ignore_eos=event.request in ignoring,
                priority=event.priority,
            )
        except ConfigError as error:
            raise TraceError(path, f"request {event.request!r}: {error}", number) from None
    return list(workload.values())


def _those_that_ignore_eos(events: list[AnyEvent], eos_token_ids: Collection[int]) -> set[RequestId]:
    """The requests that went on after an end-of-sequence token, or ended for another reason at one."""
    at_eos: set[RequestId] = set()
    ignoring: set[RequestId] = set()
    for event in events:
        if isinstance(event, TokensAppended):
            for request, token in zip(event.requests, event.tokens, strict=True):
                if request in at_eos:
                    ignoring.add(request)
                if token in eos_token_ids:
                    at_eos.add(request)
        elif isinstance(event, RequestFinished) and event.request in at_eos and event.reason == "length":
            ignoring.add(event.request)
    return ignoring
