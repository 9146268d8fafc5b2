"""Least squares with coefficients that are not negative: times only add up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def nonnegative_least_squares(features: FloatArray, values: FloatArray) -> FloatArray:
    """The ``x`` >= 0 for which ``features @ x`` comes closest to ``values``.

    The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23): coefficients leave
    zero one by one, the one that helps most first, and return to it if a later one makes them negative.
    """
    scale = np.linalg.norm(features, axis=0)
    scale[scale == 0] = 1.0
    scaled = features / scale
    num_features = scaled.shape[1]
    x = np.zeros(num_features)
    is_free = np.zeros(num_features, dtype=bool)
    tolerance = 1e-12 * max(1.0, float(np.abs(scaled.T @ values).max(initial=0.0)))
    for _ in range(3 * num_features):
        gain = np.where(is_free, -np.inf, scaled.T @ (values - scaled @ x))
        best = int(gain.argmax())
        if gain[best] <= tolerance:
            break
        is_free[best] = True
        x = _solve_free(scaled, values, x, is_free)
    found: FloatArray = x / scale
    return found


def _solve_free(features: FloatArray, values: FloatArray, x: FloatArray, is_free: NDArray[np.bool_]) -> FloatArray:
    """The least squares over the free coefficients; those that would become negative are held at zero again."""
    while is_free.any():
        solution = np.zeros_like(x)
        solution[is_free] = np.linalg.lstsq(features[:, is_free], values, rcond=None)[0]
        is_negative = is_free & (solution <= 0)
        if not is_negative.any():
            return solution
        # As far towards the solution as all stay non-negative; whoever stops us is held.
        steps = x[is_negative] / (x[is_negative] - solution[is_negative] + 1e-300)
        x = x + min(1.0, float(steps.min())) * (solution - x)
        is_free &= ~(is_negative & (x <= 1e-15))
        x[~is_free] = 0.0
    return np.zeros_like(x)
