"""One call from a workload to what would happen: the engine on a modelled GPU, from first arrival to last token."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import ConfigError, RequestError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import AnyEvent, Emit, RequestId
from nanovllm.trace.recorder import tee
from sim.backend import SimulatedBackend
from sim.cost_models import CostModel, Roofline, StepTime
from sim.hardware import GPU, find_gpu
from sim.memory import num_kv_blocks_that_fit
from sim.outputs import DrawnOutputs, RecordedOutputs
from sim.token_ids import DEFAULT_VOCAB_SIZE
from sim.workload import Prompts, WorkloadRequest, in_order_of_arrival, read_workload, to_requests
from sim.workload.requests import Tokenize

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics

DEFAULT_MODEL = "qwen3-0.6b"


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """What a simulation tells."""

    events: list[AnyEvent]
    """The trace, header first; empty if it was not recorded."""
    rejected: list[tuple[RequestId, RequestError]]
    """The requests that could never run, and why."""
    num_steps: int
    time_s: float
    """Virtual time at the end."""
    time_spent: StepTime
    """Of all steps, part by part; what is missing to ``time_s`` was waited for arrivals."""
    loop_time_s: float
    """Real time that the simulation took, without setting it up."""

    @cached_property
    def metrics(self) -> Metrics:
        """Latencies, throughput and counts, from the events. Raises ``ConfigError`` if they were not recorded (a
        ``nanovllm.trace.metrics_collector.MetricsCollector`` can listen to a run instead)."""
        from nanovllm.trace.metrics import compute_metrics

        if not self.events:
            raise ConfigError("record", False, "metrics are made from the recorded events")
        return compute_metrics(self.events)


def simulate(
    config: Config,
    workload: str | Path | Iterable[WorkloadRequest],
    *,
    gpu: str | GPU = "h200",
    model: str | ModelSpec | None = None,
    cost_model: CostModel | None = None,
    outputs: RecordedOutputs | None = None,
    tokenize: Tokenize | None = None,
    scheduler: type[Scheduler] | None = None,
    lookahead: bool = False,
    record: bool = True,
    emit: Emit | None = None,
) -> SimulationResult:
    """Run ``workload`` (a file, a list, or an iterator in order of arrival) on a modelled GPU.

    ``model``: a name of ``nanovllm.model_spec.PRESETS``, a directory with a config.json, or a spec; None takes
    ``config.model``, or ``DEFAULT_MODEL`` if that is empty. ``cost_model``: by default the roofline of model and
    ``gpu``. ``config.num_kvcache_blocks`` = -1 stands for as many blocks as fit the card; a ``max_model_len``
    of -1 for all positions of the model. Options that say how a real card is used (``device``,
    ``enforce_eager`` ...) change nothing here.

    ``lookahead``: decide each step while the modelled GPU computes the one before, as the engine does on a real card;
    ``config.lookahead``, which is on by default, is not asked.

    ``outputs``: the answers of a recorded run instead of drawn ones; see ``RecordedOutputs.choose_options``. For
    drawn ones an end-of-sequence id is made up, if there is none, so that ``output_len`` can end a request.
    ``scheduler``: a policy of one's own, see ``Engine``.
    ``record`` keeps the events; ``emit`` is called with each one. Same arguments, same events.

    Raises ``UserError`` for what cannot be used; a request that can never run is in ``rejected``.
    """
    config = replace(config, lookahead=lookahead)
    if outputs is not None:
        config = outputs.choose_options(config)
    config, spec = _find_model(config, model)
    _check_tensor_parallel_size(config.tensor_parallel_size, spec)
    card = find_gpu(gpu) if isinstance(gpu, str) else gpu
    if config.num_kvcache_blocks == -1:
        config = replace(config, num_kvcache_blocks=num_kv_blocks_that_fit(config, spec, card))
    vocab_size = min(spec.vocab_size, DEFAULT_VOCAB_SIZE)
    if outputs is None and not config.eos_token_ids:
        config = replace(config, eos=vocab_size)  # the first id that is never drawn
    if cost_model is None:
        cost_model = Roofline(model=spec, gpu=card, tensor_parallel_size=config.tensor_parallel_size)

    answers = DrawnOutputs(config.eos_token_ids, vocab_size) if outputs is None else outputs
    clock = VirtualClock()
    facts = {"hardware": card.name, "cost_model": type(cost_model).__name__}
    backend = SimulatedBackend(clock, cost_model, answers, config.num_kvcache_blocks, facts=facts)
    events: list[AnyEvent] = []
    listener = _listener(events, record, emit)
    engine = Engine(config, backend, clock=clock, emit=listener, vocab_size=spec.vocab_size, scheduler=scheduler)
    prompts = Prompts(seed=config.seed, vocab_size=vocab_size, tokenize=tokenize)
    requests = _to_engine(workload, prompts, answers)

    start_s = time.perf_counter()
    num_steps = _run(engine, requests, outputs)
    return SimulationResult(
        events=events,
        rejected=engine.rejected,
        num_steps=num_steps,
        time_s=clock.now(),
        time_spent=backend.time_spent,
        loop_time_s=time.perf_counter() - start_s,
    )


def _find_model(config: Config, model: str | ModelSpec | None) -> tuple[Config, ModelSpec]:
    """The shape of the model that ``model`` or else ``config.model`` names, see ``simulate``; with ``config.dtype``,
    if that names a type. The config is given the name, if it has none, and bounded by the model's positions."""
    if isinstance(model, ModelSpec):
        spec = model
    else:
        name = model or config.model or DEFAULT_MODEL
        is_directory = Path(name).is_dir()
        spec = ModelSpec.from_directory(name) if is_directory else ModelSpec.preset(name.rpartition("/")[2])
        config = replace(config, model=config.model or name)
    config = config.for_positions(spec.max_position_embeddings)
    return config, spec if config.dtype == "auto" else replace(spec, dtype=config.dtype)


def _check_tensor_parallel_size(num_gpus: int, spec: ModelSpec) -> None:
    if spec.num_kv_heads % num_gpus:
        raise ConfigError("tensor_parallel_size", num_gpus, f"a divisor of the model's {spec.num_kv_heads} KV heads")


def _listener(events: list[AnyEvent], record: bool, emit: Emit | None) -> Emit | None:
    if not record:
        return emit
    return events.append if emit is None else tee(events.append, emit)


def _to_engine(
    workload: str | Path | Iterable[WorkloadRequest], prompts: Prompts, answers: DrawnOutputs | RecordedOutputs
) -> Iterable[Request]:
    """A file or a list is made ready before the clock starts; anything else is read as the clock goes on."""
    if isinstance(workload, (str, Path)):
        workload = read_workload(workload, allow_text=prompts.tokenize is not None)
    if isinstance(workload, (list, tuple)):
        return list(_with_answers(in_order_of_arrival(workload), prompts, answers))
    return _with_answers(workload, prompts, answers)


def _with_answers(
    workload: Iterable[WorkloadRequest], prompts: Prompts, answers: DrawnOutputs | RecordedOutputs
) -> Iterator[Request]:
    """The engine's requests. What is known of an answer goes to the backend's side, not with the request."""

    def noted() -> Iterator[WorkloadRequest]:
        for item in workload:
            if isinstance(answers, DrawnOutputs) and item.output_len is not None:
                answers.set_length(item.id, item.output_len)
            yield item

    for request in to_requests(noted(), prompts):
        if isinstance(answers, RecordedOutputs):
            stop_condition = answers.stop_condition(request.request_id)
            if stop_condition is not None:
                request = msgspec.structs.replace(request, stop_condition=stop_condition)
        yield request


def _run(engine: Engine, requests: Iterable[Request], recorded: RecordedOutputs | None) -> int:
    num_steps = 0
    with _collector_paused():
        for result in engine.run(requests):
            num_steps += 1
            if recorded is not None:
                for request_id in recorded.aborted_after(result.step):
                    engine.abort(request_id)
    engine.close()
    return num_steps


@contextmanager
def _collector_paused() -> Iterator[None]:
    """The loop makes no reference cycles; looking for some among all its requests and events takes a third of it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
