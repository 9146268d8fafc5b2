"""One call from a workload to what would happen: the engine on a modelled GPU, from first arrival to last token."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import ConfigError, RequestError
from nanovllm.interrupts import uninterrupted
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import AnyEvent, Emit, RequestId
from nanovllm.trace.recorder import BATCH_EVENTS, Batches, EmitAll, tee
from sim.cost_models import CostModel, StepTime
from sim.engine_setup import set_up
from sim.hardware import GPU
from sim.outputs import RecordedOutputs
from sim.progress import Progress
from sim.workload import WorkloadRequest
from sim.workload.requests import Tokenize

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """What a simulation tells."""

    events: list[AnyEvent]
    """The trace, header first; empty if it was not recorded."""
    rejected: list[tuple[RequestId, RequestError]]
    """The requests that could never run, and why."""
    facts: Mapping[str, Any]
    """As in the header of the trace: the card (``hardware``), the ``cost_model``, ``lookahead``."""
    num_steps: int
    num_extrapolated_steps: int
    """Of them, those larger than all that the cost model was measured on: see ``BoundedCostModel``."""
    time_s: float
    """Virtual time at the end."""
    time_spent: StepTime
    """Of all steps, part by part; what is missing to ``time_s`` was waited for arrivals."""
    loop_time_s: float
    """Real time that the simulation took, without setting it up."""

    @cached_property
    def metrics(self) -> Metrics:
        """Latencies, throughput and counts, from the events. Raises ``ConfigError`` if they were not recorded (a
        ``nanovllm.trace.metrics.collector.MetricsCollector`` can listen to a run instead)."""
        from nanovllm.trace.metrics import compute_metrics

        if not self.events:
            raise ConfigError("record", False, "metrics are made from the recorded events")
        return compute_metrics(self.events)


def simulate(
    config: Config,
    workload: str | Path | Iterable[WorkloadRequest],
    *,
    gpu: str | GPU | None = None,
    model: str | ModelSpec | None = None,
    cost_model: CostModel | None = None,
    outputs: RecordedOutputs | None = None,
    tokenize: Tokenize | None = None,
    scheduler: type[Scheduler] | None = None,
    record: bool = True,
    emit: Emit | None = None,
    listeners: Iterable[EmitAll] = (),
) -> SimulationResult:
    """Run ``workload`` (a file, a list, or an iterator in order of arrival) on a modelled GPU.

    ``gpu``: a name of ``sim.hardware.GPUS``, or one's own; None takes the cost model's, if that knows it, or else
    ``sim.measured_times.DEFAULT_GPU``.

    ``model``: a name of ``nanovllm.model_spec.PRESETS``, a directory with a config.json, or a spec; None takes
    ``config.model``, or ``sim.engine_setup.DEFAULT_MODEL`` if that is empty. ``cost_model``: by default the roofline
    of model and ``gpu``. ``config.num_kvcache_blocks`` = -1 stands for as many blocks as fit the card; a
    ``max_model_len`` of -1 for all positions of the model. Options that say how a real card is used (``device``,
    ``enforce_eager`` ...) change nothing here.

    Times that were measured hold for the card, the type and the engine with which they were: these are chosen, unless
    they are given; another card or type is refused. Otherwise ``config.lookahead`` is off unless it is given.

    ``outputs``: the answers of a recorded run instead of drawn ones; see ``RecordedOutputs.choose_options``. For
    drawn ones an end-of-sequence id is made up, if there is none, so that ``output_len`` can end a request.
    ``scheduler``: a policy of one's own, see ``Engine``.
    ``record`` keeps the events; ``emit`` is called with each one, ``listeners`` with some thousand at a time, which is
    faster. Same arguments, same events.

    Raises ``UserError`` for what cannot be used; a request that can never run is in ``rejected``.
    """
    setup = set_up(config, gpu=gpu, model=model, cost_model=cost_model, outputs=outputs)
    events: list[AnyEvent] = []
    batches = Batches(listeners)
    emits = [batches.emit] if listeners else []
    engine, backend, clock = setup.make_engine(listener(events, record, emit, *emits), scheduler)
    requests = setup.requests(workload, tokenize)

    start_s = time.perf_counter()
    try:
        num_steps = _run(engine, requests, outputs, batches)
    finally:
        pass_on(batches)
    return SimulationResult(
        events=events,
        rejected=engine.rejected,
        facts=engine.facts,
        num_steps=num_steps,
        num_extrapolated_steps=backend.num_extrapolated_steps,
        time_s=clock.now(),
        time_spent=backend.time_spent,
        loop_time_s=time.perf_counter() - start_s,
    )


def listener(events: list[AnyEvent], record: bool, *emits: Emit | None) -> Emit | None:
    """Who hears of the events: ``events``, if they are recorded, and ``emits``."""
    listening = [emit for emit in (events.append if record else None, *emits) if emit is not None]
    return tee(*listening) if listening else None


def pass_on(batches: Batches, least: int = 1) -> None:
    """Hand events on, if there are so many. A Ctrl-C waits until every listener has heard of all of them: what was
    written and what was measured are the same."""
    if len(batches) >= least:
        with uninterrupted():
            batches.pass_on()


def _run(engine: Engine, requests: Iterable[Request], recorded: RecordedOutputs | None, batches: Batches) -> int:
    num_steps, progress = 0, Progress(engine)
    with collector_paused():
        for result in engine.run(requests):
            num_steps += 1
            progress.note(result)
            pass_on(batches, BATCH_EVENTS)
            if recorded is not None:
                for request_id in recorded.aborted_after(result.step):
                    engine.abort(request_id)
    engine.close()
    return num_steps


@contextmanager
def collector_paused() -> Iterator[None]:
    """The loop makes no reference cycles; looking for some among all its requests and events takes a third of it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
