"""What a simulation is made of, before it runs: options that fit model and card, and engines of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import Emit
from sim.backend import SimulatedBackend
from sim.cost_models import CostModel, PooledCostModel, RequestCostModel, Roofline
from sim.hardware import GPU
from sim.measured_times import as_measured, find_card, hardware_of
from sim.memory import num_kv_blocks_that_fit
from sim.outputs import DrawnOutputs, RecordedOutputs
from sim.token_ids import DEFAULT_VOCAB_SIZE
from sim.workload import Prompts, WorkloadRequest, in_order_of_arrival, read_workload, to_requests
from sim.workload.requests import Tokenize

DEFAULT_MODEL = "qwen3-0.6b"


class _ModelledEngine(Engine):
    """An engine for which it takes time to add a request, too."""

    def __init__(self, clock: VirtualClock, request_cost: RequestCostModel, *args: Any, **options: Any) -> None:
        super().__init__(*args, clock=clock, **options)
        self._virtual_clock = clock
        self._request_cost = request_cost

    def add(self, request: Request) -> Sequence:
        """See ``Engine``."""
        seq = super().add(request)
        self._virtual_clock.advance(self._request_cost.request_time_s(seq.num_prompt_tokens))
        return seq


class SimulatedEngine(NamedTuple):
    """An engine on a modelled GPU, and what it shares with it."""

    engine: Engine
    backend: SimulatedBackend
    clock: VirtualClock


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that ``set_up`` has chosen. Engines made of it know nothing of each other."""

    config: Config
    """With the number of KV blocks."""
    model: ModelSpec
    hardware: str | None
    """The card that is modelled, or was measured; None if nobody told which."""
    cost_model: CostModel
    answers: DrawnOutputs | RecordedOutputs

    def make_engine(self, emit: Emit | None, scheduler: type[Scheduler] | None = None) -> SimulatedEngine:
        """An engine that emits the header of its trace at once. Arguments as for ``Engine``."""
        clock = VirtualClock()
        num_blocks = self.config.num_kvcache_blocks
        backend = SimulatedBackend(clock, self.cost_model, self.answers, num_blocks, facts=self._facts())
        options: dict[str, Any] = {"emit": emit, "vocab_size": self._vocab_size(), "scheduler": scheduler}
        if isinstance(self.cost_model, RequestCostModel):
            engine: Engine = _ModelledEngine(clock, self.cost_model, self.config, backend, **options)
        else:
            engine = Engine(self.config, backend, clock=clock, **options)
        return SimulatedEngine(engine, backend, clock)

    def _vocab_size(self) -> int | None:
        are_made_up = isinstance(self.answers, RecordedOutputs) and self.answers.has_prompts_made_up
        return None if are_made_up else self.model.vocab_size

    def _facts(self) -> dict[str, Any]:
        """What times depend on beside the options that decide."""
        return {
            **({} if self.hardware is None else {"hardware": self.hardware}),
            "cost_model": type(self.cost_model).__name__,
            "dtype": self.model.dtype,
            "tensor_parallel_size": self.config.tensor_parallel_size,
        }

    def requests(
        self, workload: str | Path | Iterable[WorkloadRequest], tokenize: Tokenize | None = None
    ) -> Iterable[Request]:
        """The workload as engines take it, one by one: prompts are made when they are due. A file or a list is sorted;
        anything else must be in order of arrival."""
        prompts = prompts_of(self.config, self.model, tokenize)
        if isinstance(workload, (str, Path)):
            workload = read_workload(workload, allow_text=tokenize is not None)
        if isinstance(workload, (list, tuple)):
            workload = in_order_of_arrival(workload)
        return self._with_answers(workload, prompts)

    def _with_answers(self, workload: Iterable[WorkloadRequest], prompts: Prompts) -> Iterator[Request]:
        """What is known of an answer goes to the backend's side, not with the request."""
        answers = self.answers

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


def prompts_of(config: Config, model: ModelSpec, tokenize: Tokenize | None = None) -> Prompts:
    """What a simulation of ``model`` with these options makes prompts with."""
    return Prompts(seed=config.seed, vocab_size=_num_drawn_ids(model), tokenize=tokenize)


def _num_drawn_ids(model: ModelSpec) -> int:
    """Token ids are drawn from below this number."""
    return min(model.vocab_size, DEFAULT_VOCAB_SIZE)


def set_up(
    config: Config,
    *,
    gpu: str | GPU | None,
    model: str | ModelSpec | None,
    cost_model: CostModel | None,
    outputs: RecordedOutputs | None = None,
) -> Setup:
    """Choose what the arguments leave open; see ``simulate``. Raises ``UserError`` for what does not fit together."""
    config = as_measured(config, cost_model)
    if outputs is not None:
        config = outputs.choose_options(config)
    config, spec = _find_model(config, model)
    spec.check_tensor_parallel_size(config.tensor_parallel_size)
    card = find_card(gpu, cost_model)
    if config.num_kvcache_blocks == -1:
        config = replace(config, num_kvcache_blocks=_num_blocks_of(card, cost_model, config, spec))
    vocab_size = _num_drawn_ids(spec)
    if outputs is None and not config.eos_token_ids:
        config = replace(config, eos=vocab_size)  # the first id that is never drawn
    if cost_model is None:
        assert card is not None, "only measured times can be those of a card that nobody knows"
        cost_model = Roofline(model=spec, gpu=card, tensor_parallel_size=config.tensor_parallel_size)
    answers = DrawnOutputs(config.eos_token_ids, vocab_size) if outputs is None else outputs
    if isinstance(cost_model, PooledCostModel):
        cost_model = cost_model.for_block_size(config.kvcache_block_size)
    hardware = hardware_of(card, cost_model)
    return Setup(config=config, model=spec, hardware=hardware, cost_model=cost_model, answers=answers)


def _num_blocks_of(card: GPU | None, cost_model: CostModel | None, config: Config, spec: ModelSpec) -> int:
    if card is None:
        hardware = hardware_of(card, cost_model) or "a card that nobody told"
        allowed = f"a number of blocks: how much memory {hardware} has, where the times were measured, is not known"
        raise ConfigError("num_kvcache_blocks", -1, allowed)
    return num_kv_blocks_that_fit(config, spec, card)


def _find_model(config: Config, model: str | ModelSpec | None) -> tuple[Config, ModelSpec]:
    """The shape of the model that ``model`` or else ``config.model`` names, see ``simulate``; with ``config.dtype``,
    if that names a type. The config is given the name, if it has none, and bounded by the model's positions."""
    if isinstance(model, ModelSpec):
        spec = model
    else:
        name = model or config.model or DEFAULT_MODEL
        spec = ModelSpec.find(name)
        config = replace(config, model=config.model or name)
    config = config.for_positions(spec.max_position_embeddings)
    return config, spec if config.dtype == "auto" else replace(spec, dtype=config.dtype)
