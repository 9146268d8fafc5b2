"""Which cost model a command shall use: latency tables, a calibration, or the roofline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nanovllm.errors import ConfigError

if TYPE_CHECKING:
    from nanovllm.config import Config
    from nanovllm.model_spec import ModelSpec
    from sim.cost_models import CostModel

COST_MODELS = ("auto", "roofline", "table", "fitted")


class ChosenCostModel(NamedTuple):
    """``cost_model``: None for the roofline of model and card."""

    config: Config
    model: ModelSpec
    cost_model: CostModel | None


@dataclass(frozen=True, kw_only=True)
class CostModelInput:
    """Where the time of a step comes from. Raises ``ConfigError``."""

    cost_model: str = "auto"
    """One of ``COST_MODELS``. auto: the one whose file is given, else the roofline of --gpu."""
    table: Path | None = None
    """A directory of latencies measured layer by layer (table_meta.yaml, table_*.csv)."""
    calibration: Path | None = None
    """A file that `nanovllm calibrate` wrote."""

    def __post_init__(self) -> None:
        if self.cost_model not in COST_MODELS:
            raise ConfigError("cost_model", self.cost_model, f"one of {', '.join(COST_MODELS)}")
        if self.table is not None and self.calibration is not None:
            raise ConfigError("calibration", str(self.calibration), "not together with table")
        needs = {"table": self.table, "fitted": self.calibration}
        if self.cost_model in needs and needs[self.cost_model] is None:
            option = {"table": "table", "fitted": "calibration"}[self.cost_model]
            raise ConfigError("cost_model", self.cost_model, f"it needs {option}, the file to read it from")
        if self.cost_model not in ("auto", self.kind):
            raise ConfigError("cost_model", self.cost_model, f"the file that is given is for {self.kind}")

    @property
    def files(self) -> list[Path]:
        """What is read, as far as it is there."""
        if self.table is not None:
            return list(self.table.glob("table_*"))
        return [] if self.calibration is None else [self.calibration]

    @property
    def kind(self) -> str:
        """One of ``COST_MODELS``, not auto."""
        return "table" if self.table is not None else "fitted" if self.calibration is not None else "roofline"

    def choose(self, config: Config, default_model: str) -> ChosenCostModel:
        """Read the file, and let it fill in what ``config`` leaves open: the model (else ``default_model``) and the
        number of blocks. Raises ``UserError`` for what does not fit together."""
        if self.table is not None:
            from sim.cost_models import Table
            from sim.cost_models.latency_tables import read_latency_tables

            tables = read_latency_tables(self.table)
            spec = find_spec(config.model or tables.model)
            cost_model: CostModel = Table.of_vllm(tables, spec, config.max_num_seqs)
            return ChosenCostModel(replace(config, model=config.model or tables.model), spec, cost_model)
        if self.calibration is not None:
            from sim.calibration import read_calibration

            calibration = read_calibration(self.calibration)
            name = config.model or calibration.model
            cost_model = calibration.cost_model(name)
            num_blocks = config.num_kvcache_blocks
            if num_blocks == -1 and config.kvcache_block_size == calibration.block_size:
                num_blocks = calibration.num_blocks
            config = replace(config, model=name, num_kvcache_blocks=num_blocks)
            return ChosenCostModel(config, find_spec(name), cost_model)
        config = replace(config, model=config.model or default_model)
        return ChosenCostModel(config, find_spec(config.model), None)


def find_spec(name: str) -> ModelSpec:
    """The shape of a model by its name or directory. Raises ``ModelError``."""
    from nanovllm.model_spec import ModelSpec

    return ModelSpec.from_directory(name) if Path(name).is_dir() else ModelSpec.preset(name.rpartition("/")[2])
