"""Least squares whose coefficients are not negative."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sim.calibration.nnls import nonnegative_least_squares


@settings(max_examples=50)
@given(st.lists(st.floats(0, 10), min_size=5, max_size=5), st.integers(0, 10_000))
def test_coefficients_that_are_not_negative_are_found_again(coefficients: list[float], seed: int) -> None:
    features = np.random.default_rng(seed).uniform(0, 1, size=(40, 5))
    found = nonnegative_least_squares(features, features @ np.array(coefficients))
    assert found == pytest.approx(coefficients, abs=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 10_000))
def test_no_small_change_of_the_found_coefficients_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, values = rng.normal(size=(20, 6)), rng.normal(size=20)
    found = nonnegative_least_squares(features, values)
    gradient = features.T @ (features @ found - values)
    assert (found >= 0).all()
    assert np.all(np.abs(gradient[found > 0]) < 1e-8)
    assert np.all(gradient[found == 0] > -1e-8)


def test_a_coefficient_that_would_be_negative_is_0() -> None:
    features = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nonnegative_least_squares(features, np.array([3.0, 2.0, 1.0])) == pytest.approx([2.0, 0.0])
    assert nonnegative_least_squares(np.zeros((3, 2)), np.ones(3)) == pytest.approx([0.0, 0.0])
