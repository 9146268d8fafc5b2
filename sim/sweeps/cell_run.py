"""One run of a cell: its load on its engines, and what is told of it."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, NamedTuple

from nanovllm.errors import UserError
from nanovllm.trace.metrics import Metrics
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.merged import merge_collectors
from sim.chosen_cost_model import ChosenCostModel
from sim.cluster import simulate_cluster
from sim.cost_models import StepTime
from sim.simulation import simulate
from sim.sweeps.figures import Figures, figures_of
from sim.sweeps.loads import Load
from sim.sweeps.settings import CellSettings


class CellRun(NamedTuple):
    """What came of a run."""

    figures: Figures
    num_requests: int
    """All that came."""
    attainment: float
    """Share of the requests that met the objective; 0 if there is none."""
    busy_share: float
    """Share of the time that an engine spent in steps; 0 if no time passed."""


def simulate_load(cell: CellSettings, chosen: ChosenCostModel, load: Load) -> CellRun:
    """Run a load on the engines of a cell. Raises ``UserError``, also if no request of it can run."""
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
    rejected = [error for part in parts for _, error in part.rejected]
    if rejected and not metrics.num_requests:
        raise UserError(f"none of the requests can run; {rejected[0]}")
    time_spent = reduce(add, (part.time_spent for part in parts), StepTime())
    return CellRun(
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
