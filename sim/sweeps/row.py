"""One cell of a sweep, from its settings to its row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from nanovllm.errors import ConfigError, UserError
from nanovllm.trace.metrics import Metrics
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.merged import merge_collectors
from sim.chosen_cost_model import ChosenCostModel, choose_cost_model
from sim.cluster import simulate_cluster
from sim.cost_models import StepTime
from sim.engine_setup import DEFAULT_MODEL
from sim.simulation import simulate
from sim.sweeps.figures import FIGURES, Figures, figures_of
from sim.sweeps.loads import Load
from sim.sweeps.rate_search import find_highest_rate
from sim.sweeps.settings import CellSettings, check_settings
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
        **{name: str(value) if isinstance(value, tuple) else value for name, value in cell.settings.items()},
        "status": FAILED if error else COMPLETED,
        "error": error,
        **dict.fromkeys(FIGURES),
        **figures,
        WALL: time.perf_counter() - start_s,
    }


def _run(settings: Mapping[str, Any]) -> tuple[Figures, str | None]:
    try:
        return _figures(check_settings(settings)), None
    except UserError as error:
        return {}, str(error)
    except Exception as error:  # a fault of the program in one cell is no reason to lose the others
        words = " ".join(str(error).split())
        return {}, f"{type(error).__name__}: {words}" if words else type(error).__name__


def _figures(cell: CellSettings) -> Figures:
    deployment = cell.deployment
    chosen = choose_cost_model(
        cell.config,
        table=_path(deployment.table),
        calibration=_path(deployment.calibration),
        default_model=DEFAULT_MODEL,
    )
    if cell.search.find_rate is None:
        return _simulate(cell, chosen, cell.load).figures
    least, start = cell.search.find_rate, cell.load.rate or 1.0
    found = find_highest_rate(
        lambda rate: _simulate(cell, chosen, cell.load.at_rate(rate)),
        lambda run: run.attainment >= least,
        served_rate=lambda run: run.figures["requests_per_s"],
        busy_share=lambda run: run.busy_share,
        is_empty=lambda run: not run.num_requests,
        start=start,
        tolerance=cell.search.rate_tolerance,
    )
    if not found.run.num_requests:
        raise ConfigError("rate", start, "no request comes in load_duration_s, begin with a higher one")
    return {
        **found.run.figures,
        "highest_rate": found.highest_rate,
        "lowest_failing_rate": found.lowest_failing_rate,
        "num_simulations": found.num_simulations,
    }


class _Run(NamedTuple):
    figures: Figures
    num_requests: int
    """All that came."""
    attainment: float
    """Share of the requests that met the objective; 0 if there is none."""
    busy_share: float
    """Share of the time that an engine spent in steps; 0 if no time passed."""


def _simulate(cell: CellSettings, chosen: ChosenCostModel, load: Load) -> _Run:
    slo = cell.slo if cell.slo.limits else None
    num_replicas = cell.deployment.replicas
    collectors = [MetricsCollector(slo=slo, keep_requests=False) for _ in range(num_replicas)]
    requests = load.requests(cell.config.seed)
    common: dict[str, Any] = {
        "gpu": cell.deployment.gpu,
        "model": chosen.model,
        "cost_model": chosen.cost_model,
        "record": False,
    }
    load_imbalance = 1.0
    if num_replicas == 1:
        parts = [simulate(chosen.config, requests, listeners=[collectors[0].apply_all], **common)]
    else:
        cluster = simulate_cluster(
            chosen.config,
            requests,
            num_replicas=num_replicas,
            router=cell.deployment.router,
            listeners=[[collector.apply_all] for collector in collectors],
            **common,
        )
        parts, load_imbalance = cluster.replicas, cluster.load_imbalance
    metrics = merge_collectors(collectors)
    time_spent = reduce(add, (part.time_spent for part in parts), StepTime())
    return _Run(
        {
            **figures_of(metrics, time_spent),
            "num_blocks": collectors[0].pool.num_blocks,
            "num_gpus": num_replicas * chosen.config.tensor_parallel_size,
            "load_imbalance": load_imbalance,
            "num_extrapolated_steps": sum(part.num_extrapolated_steps for part in parts),
            "num_simulations": 1,
        },
        metrics.num_requests + metrics.num_rejected,
        _attainment(metrics),
        metrics.busy_s / metrics.duration_s / num_replicas if metrics.duration_s else 0.0,
    )


def _attainment(metrics: Metrics) -> float:
    return 0.0 if metrics.slo is None else metrics.slo.attainment


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
