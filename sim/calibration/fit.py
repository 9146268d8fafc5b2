"""Coefficients from measured steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.calibration.engine_time import EngineStep
from sim.calibration.file import FitError
from sim.calibration.measure import MeasuredStep
from sim.calibration.nnls import FloatArray, nonnegative_least_squares
from sim.cost_models.fitted import TOKEN_KNOTS, Coefficients, HostCoefficients, token_features
from sim.cost_models.shape import StepShape

HELD_OUT_EVERY = 5
"""Of each kind of step, one of so many is not fitted to, but predicted."""


def fit_device(steps: Sequence[MeasuredStep]) -> tuple[Coefficients, FitError]:
    """The coefficients of one kind of step, and their error on the steps that were held out."""
    assert len(steps) > HELD_OUT_EVERY // 2, "at least one step must be held out"
    place = HELD_OUT_EVERY // 2
    held_out = steps[place::HELD_OUT_EVERY]
    fitted = [step for index, step in enumerate(steps) if index % HELD_OUT_EVERY != place]
    coefficients = _coefficients([step.shape for step in fitted], [step.device_s for step in fitted])
    errors = np.array([coefficients.step_time(step.shape).total_s / step.device_s - 1 for step in held_out])
    absolute = np.abs(errors)
    return coefficients, FitError(
        num_fitted=len(fitted),
        num_held_out=len(held_out),
        mean=float(absolute.mean()),
        p90=float(np.quantile(absolute, 0.9)),
        worst=float(absolute.max()),
        bias=float(errors.mean()),
    )


def fit_host(steps: Sequence[MeasuredStep], engine_steps: Sequence[EngineStep]) -> HostCoefficients:
    """What the backend's program takes for one kind of step, and the engine for any."""
    backend = _host([(step.shape, step.host_s) for step in steps])
    engine = _host([(step.shape, step.engine_s) for step in engine_steps])
    step_s, sequence_s, token_s = (backend + engine).tolist()
    return HostCoefficients(step_s=step_s, sequence_s=sequence_s, token_s=token_s)


def _coefficients(shapes: Sequence[StepShape], times_s: Sequence[float]) -> Coefficients:
    features = np.array([_features(shape) for shape in shapes])
    found = _fit_shares(features, np.array(times_s)).tolist()
    num_knots = len(TOKEN_KNOTS)
    largest = max(shape.num_tokens for shape in shapes)
    for place in range(1, num_knots):
        if TOKEN_KNOTS[place] >= largest:  # never measured: it goes on as before
            found[place + 1] = found[place]
    sequence_s, kv_token_s, shared_kv_token_s, chunk_pair_s = found[num_knots + 1 :]
    return Coefficients(
        step_s=found[0],
        token_s=tuple(found[1 : num_knots + 1]),
        sequence_s=sequence_s,
        kv_token_s=kv_token_s,
        shared_kv_token_s=shared_kv_token_s,
        chunk_pair_s=chunk_pair_s,
    )


def _features(shape: StepShape) -> list[float]:
    """In the order of the fields of ``Coefficients``."""
    num_sequences = 0.0 if shape.kind == "decode" else float(shape.num_sequences)
    return [
        1.0,
        *token_features(shape.num_tokens),
        num_sequences,
        float(shape.num_read_tokens),
        float(shape.shared_kv_tokens),
        shape.chunk_pairs,
    ]


def _host(times: Sequence[tuple[StepShape, float]]) -> FloatArray:
    features = np.array([[1.0, float(shape.num_sequences), float(shape.num_tokens)] for shape, _ in times])
    return _fit_shares(features, np.array([time_s for _, time_s in times]))


def _fit_shares(features: FloatArray, times_s: FloatArray) -> FloatArray:
    """Least squares of the errors as shares of the times: a short step counts as much as a long one."""
    weights = 1 / np.maximum(times_s, 1e-9)
    return nonnegative_least_squares(features * weights[:, None], times_s * weights)
