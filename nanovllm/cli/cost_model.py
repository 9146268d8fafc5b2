"""Which cost model a command shall use: latency tables, a calibration, or the roofline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import print_note
from nanovllm.errors import ConfigError

if TYPE_CHECKING:
    from nanovllm.config import Config
    from sim.chosen_cost_model import ChosenCostModel
    from sim.cost_models import CostModel

Gpu = Annotated[
    str | None,
    typer.Option(
        help="The card to model; an unknown name lists all. Without it, the card that was measured, or else h200."
    ),
]


@dataclass(frozen=True, kw_only=True)
class CostModelInput:
    """Where the time of a step comes from: a file, or else the roofline of --gpu. Raises ``ConfigError``."""

    table: Path | None = None
    """A directory of latencies measured layer by layer (table_meta.yaml, table_*.csv)."""
    calibration: Path | None = None
    """A file that `nanovllm calibrate` wrote, or h200-qwen3-0.6b, which was measured."""

    def __post_init__(self) -> None:
        if self.table is not None and self.calibration is not None:
            raise ConfigError("calibration", str(self.calibration), "not together with table")

    @property
    def files(self) -> list[Path]:
        """What is read, as far as it is there; none for the roofline."""
        if self.table is not None:
            return list(self.table.glob("table_*"))
        return [] if self.calibration is None else [self.calibration]

    def choose(self, config: Config, default_model: str | None = None) -> ChosenCostModel:
        """Read the file; see ``sim.chosen_cost_model``. ``default_model``: by default that of ``sim.simulate``."""
        from sim.chosen_cost_model import choose_cost_model
        from sim.engine_setup import DEFAULT_MODEL

        default_model = default_model or DEFAULT_MODEL
        return choose_cost_model(config, table=self.table, calibration=self.calibration, default_model=default_model)

    def source_of_times(self, chosen: ChosenCostModel, gpu: str | None) -> str:
        """The line that tells where the times of a simulation come from: ``chosen`` is what ``choose`` gave. Raises
        ``ConfigError`` for another card than the measured one."""
        from sim.measured_times import find_card, hardware_of

        card = hardware_of(find_card(gpu, chosen.cost_model), chosen.cost_model) or "a card that nobody told"
        if self.table is not None:
            return times_line([f"latency tables of {chosen.config.model}, {card}"])
        if self.calibration is not None:
            return times_line([f"calibration {self.calibration}, {card}"])
        return times_line([roofline_of([card], [chosen.config.model])])


def roofline_of(cards: Iterable[str], models: Iterable[str]) -> str:
    """What times are that nobody measured."""
    return f"roofline of {', '.join(cards)} (data sheet, not measured), {', '.join(models)}"


def times_line(sources: Iterable[str]) -> str:
    """The line with figures of simulations that tells where their times come from."""
    return f"times: {'; '.join(sources)}"


def print_extrapolation(num_steps: int, num_extrapolated_steps: int, cost_model: CostModel | None) -> None:
    """A note, if there were steps that lie outside of what ``cost_model`` was measured on."""
    from sim.cost_models import BoundedCostModel

    if num_extrapolated_steps and isinstance(cost_model, BoundedCostModel):
        print_note(
            f"{num_extrapolated_steps:,} of {num_steps:,} steps lie outside of what was measured, their times are "
            f"extrapolated; measured were {cost_model.measured}"
        )
