"""What a row of a sweep tells of a run: the metrics, one number a column, units last."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from nanovllm.trace.metrics import Metrics
from nanovllm.trace.metrics.latency import Latency
from nanovllm.trace.metrics.slo import SloAttainment
from sim.cost_models import StepTime

Figures = dict[str, Any]
"""By column; None where there is nothing to tell."""

_LEFT_OUT = ("num_requests", "requests", "step_times", "slo")
"""Of ``Metrics``: what is told otherwise, or is no number. (``num_requests`` is a setting.)"""
_OF_LATENCY = ("mean", "p50", "p90", "p95", "p99", "max")
_TYPES_OF_METRICS: dict[str, Any] = {
    name: annotation for name, annotation in get_type_hints(Metrics).items() if name not in _LEFT_OUT
}
_OF_SLO = ("slo_attainment", "goodput_requests_per_s", "goodput_tokens_per_s", "fluid_share")
_OF_DEPLOYMENT: dict[str, type] = {
    "num_blocks": int,
    "num_gpus": int,
    "load_imbalance": float,
    "num_extrapolated_steps": int,
}
_OF_SEARCH: dict[str, type] = {
    "highest_rate": float,
    "lowest_failing_rate": float,
    "num_simulations": int,
    "search_window_s": float,
    "rate_drift": float,
}


def _types() -> dict[str, type]:
    known: dict[str, type] = {}
    for name, annotation in _TYPES_OF_METRICS.items():
        if _is_latency(annotation):
            known.update({_column(name, part): float for part in _OF_LATENCY})
        else:
            known[name] = annotation
    time_spent = {f"time_spent_{name}": float for name in StepTime().parts}
    return {
        **known,
        **dict.fromkeys(_OF_SLO, float),
        **time_spent,
        **_OF_DEPLOYMENT,
        **_OF_SEARCH,
    }


def figures_of(metrics: Metrics, time_spent: StepTime) -> Figures:
    """The columns of one run, or of replicas together. ``time_spent``: of all steps."""
    figures: Figures = {}
    for name, annotation in _TYPES_OF_METRICS.items():
        value = getattr(metrics, name)
        if _is_latency(annotation):
            latency: Latency | None = value
            figures.update({_column(name, part): getattr(latency, part, None) for part in _OF_LATENCY})
        else:
            figures[name] = value
    parts = {f"time_spent_{name}": value for name, value in time_spent.parts.items()}
    return {**figures, **_slo_figures(metrics.slo), **parts}


def _slo_figures(slo: SloAttainment | None) -> Figures:
    if slo is None:
        return dict.fromkeys(_OF_SLO)
    fluid_share = None if slo.fluidity is None else slo.fluidity.fluid_share
    values = (slo.attainment, slo.goodput_requests_per_s, slo.goodput_tokens_per_s, fluid_share)
    return dict(zip(_OF_SLO, values, strict=True))


def _is_latency(annotation: Any) -> bool:
    return Latency in get_args(annotation)


def _column(name: str, part: str) -> str:
    return f"{name.removesuffix('_s')}_{part}_s"


FIGURES: dict[str, type] = _types()
"""Every column that a run fills, with its type."""
