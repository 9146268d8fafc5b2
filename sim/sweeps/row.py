"""One cell of a sweep, from its settings to its row."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from traceback import walk_tb
from typing import Any

from nanovllm.errors import UserError
from sim.chosen_cost_model import choose_cost_model
from sim.engine_setup import DEFAULT_MODEL
from sim.sweeps.cell_run import simulate_load
from sim.sweeps.figures import FIGURES, Figures
from sim.sweeps.settings import CellSettings, Value, check_settings
from sim.sweeps.steady_rate import search_rate
from sim.sweeps.sweep import Cell

Row = dict[str, Any]
"""A cell's key (``cell``), its settings, ``status``, ``error``, the ``FIGURES``, and ``wall_s``."""

COMPLETED, FAILED = "completed", "failed"
WALL = "wall_s"
"""The one column that is no function of the cell: how long it took to compute."""


def run_cell(cell: Cell) -> Row:
    """The row of a cell. What goes wrong is told in the row: ``status`` is failed, ``error`` one line."""
    start_s = time.perf_counter()
    figures, error = _run(cell.settings)
    return {
        "cell": cell.key,
        **{name: as_in_row(value) for name, value in cell.settings.items()},
        "status": FAILED if error else COMPLETED,
        "error": error,
        **dict.fromkeys(FIGURES),
        **figures,
        WALL: time.perf_counter() - start_s,
    }


def as_in_row(value: Value) -> Value:
    """What a row holds of the value of a setting."""
    return str(value) if isinstance(value, tuple) else value


def _run(settings: Mapping[str, Any]) -> tuple[Figures, str | None]:
    try:
        return _figures(check_settings(settings)), None
    except UserError as error:
        return {}, str(error)
    except Exception as error:  # a fault of the program in one cell is no reason to lose the others
        words = " ".join(str(error).split())
        told = f"{type(error).__name__}: {words}" if words else type(error).__name__
        return {}, f"{told} ({_place_of(error)})"


def _place_of(error: Exception) -> str:
    """Where it was raised, ``file.py:9``: of a policy of one's own, perhaps."""
    frame, line = deque(walk_tb(error.__traceback__), maxlen=1)[0]
    return f"{Path(frame.f_code.co_filename).name}:{line}"


def _figures(cell: CellSettings) -> Figures:
    deployment = cell.deployment
    chosen = choose_cost_model(
        cell.config,
        table=_path(deployment.table),
        calibration=_path(deployment.calibration),
        default_model=DEFAULT_MODEL,
    )
    if cell.search.find_rate is None:
        return simulate_load(cell, chosen, cell.load).figures
    searched = search_rate(cell, lambda load: simulate_load(cell, chosen, load))
    return {
        **searched.found.run.figures,
        "highest_rate": searched.found.highest_rate,
        "lowest_failing_rate": searched.found.lowest_failing_rate,
        "num_simulations": searched.num_simulations,
        "search_window_s": searched.window_s,
        "rate_drift": searched.drift,
    }


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
