"""Measured times hold for the card, the type of numbers and the engine with which they were measured: what a simulation
with them takes from there, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

from nanovllm.config import Config
from nanovllm.errors import ConfigError
from sim.cost_models import CostModel, MeasuredCostModel, Roofline
from sim.hardware import GPU, GPUS, find_gpu, find_measured_gpu

DEFAULT_GPU = "h200"
"""Where nothing else tells the card."""
_WHY = "as when the times were measured; the roofline knows others"


def as_measured(config: Config, cost_model: CostModel | None) -> Config:
    """``config`` with the type and the lookahead of measured times, where it leaves them open. Without measured times,
    lookahead is off then. Raises ``ConfigError`` for another type, or another number of cards, than the measured."""
    if not isinstance(cost_model, MeasuredCostModel):
        return replace(config, lookahead=bool(config.lookahead))
    num_gpus, dtype = cost_model.num_gpus, cost_model.dtype
    if config.tensor_parallel_size != num_gpus:
        raise ConfigError("tensor_parallel_size", config.tensor_parallel_size, f"{num_gpus}, {_WHY}")
    if dtype is not None and config.dtype not in ("auto", dtype):
        raise ConfigError("dtype", config.dtype, f"{dtype}, {_WHY}")
    lookahead = cost_model.lookahead if config.lookahead is None else config.lookahead
    return replace(config, dtype=dtype or config.dtype, lookahead=lookahead)


def find_card(gpu: str | GPU | None, cost_model: CostModel | None) -> GPU | None:
    """The card of a simulation: ``gpu``, or else the cost model's, or else ``DEFAULT_GPU``. None if times were measured
    on one of which nothing more is known. Raises ``ConfigError`` for another card than the measured one."""
    given = find_gpu(gpu) if isinstance(gpu, str) else gpu
    if isinstance(cost_model, MeasuredCostModel):
        return _find_measured_card(given, cost_model.hardware)
    if given is None and isinstance(cost_model, Roofline):
        return cost_model.gpu
    return given or GPUS[DEFAULT_GPU]


def _find_measured_card(given: GPU | None, hardware: str | None) -> GPU | None:
    if hardware is None:
        return given
    if given is None:
        return find_measured_gpu(hardware)
    if not given.is_called(hardware):
        card = find_measured_gpu(hardware)
        allowed = "none" if card is None else card.name
        told = f"{allowed}, as the times were measured on {hardware!r}; the roofline knows others"
        raise ConfigError("gpu", given.name, told)
    return given


def hardware_of(card: GPU | None, cost_model: CostModel | None) -> str | None:
    """What a trace calls the card: as the measured times do, if they tell it, or else ``card``'s name."""
    measured = cost_model.hardware if isinstance(cost_model, MeasuredCostModel) else None
    return measured or (None if card is None else card.name)
