"""From the file of measured times that a user names to a cost model, and options that fit it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from nanovllm.config import Config
from nanovllm.errors import ConfigError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.state.pool import MAX_NUM_BLOCKS
from sim.calibration import Calibration, read_calibration
from sim.calibration.file import short_name
from sim.cost_models import CostModel, Table
from sim.cost_models.latency_tables import read_latency_tables
from sim.measured_times import as_measured


class ChosenCostModel(NamedTuple):
    """``cost_model``: None for the roofline of model and card."""

    config: Config
    model: ModelSpec
    cost_model: CostModel | None


def choose_cost_model(
    config: Config, *, table: Path | None, calibration: Path | None, default_model: str
) -> ChosenCostModel:
    """Read the directory of latency tables, the calibration or neither, and let it fill in what ``config`` leaves open:
    the model (else ``default_model``) and the number of blocks. Raises ``UserError`` for what does not fit together."""
    if table is not None and calibration is not None:
        raise ConfigError("calibration", str(calibration), "not together with table")
    if table is not None:
        tables = read_latency_tables(table)
        spec = ModelSpec.find(config.model or tables.model)
        cost_model = Table.of_vllm(tables, spec, config.max_num_seqs)
        config = replace(config, model=config.model or tables.model)
        return ChosenCostModel(as_measured(config, cost_model), spec, cost_model)
    if calibration is not None:
        return _choose_calibrated(config, calibration)
    config = replace(config, model=config.model or default_model)
    return ChosenCostModel(config, ModelSpec.find(config.model), None)


def _choose_calibrated(config: Config, path: Path) -> ChosenCostModel:
    calibration = read_calibration(path)
    name = config.model or calibration.model
    is_measured_one = short_name(name) == calibration.model and not Path(name).is_dir()
    spec = calibration.spec if is_measured_one and calibration.spec is not None else ModelSpec.find(name)
    cost_model = calibration.cost_model(name, spec)
    if config.num_kvcache_blocks == -1 and config.gpu_memory_utilization == calibration.gpu_memory_utilization:
        config = replace(config, num_kvcache_blocks=_blocks_of_pool(calibration, config.kvcache_block_size))
    return ChosenCostModel(as_measured(replace(config, model=name), cost_model), spec, cost_model)


def _blocks_of_pool(calibration: Calibration, block_size: int) -> int:
    """As many as hold the tokens for which there was room."""
    num_tokens = calibration.num_blocks * calibration.block_size
    return min(max(1, num_tokens // block_size), MAX_NUM_BLOCKS)
