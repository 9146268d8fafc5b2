"""Linear interpolation: exact at the knots, between their values elsewhere, and across tables with holes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sim.cost_models.interpolation import Line, Surface, weighted_sum

NUMBERS = st.integers(0, 10_000)
POINTS = st.dictionaries(NUMBERS, st.floats(0, 1e3), min_size=1, max_size=8)


@given(POINTS)
def test_a_line_is_exact_at_its_knots(points: dict[int, float]) -> None:
    line = Line(points)
    assert [line(knot) for knot in points] == list(points.values())


@given(POINTS, st.floats(0, 10_000))
def test_between_two_knots_a_line_lies_between_their_values(points: dict[int, float], x: float) -> None:
    line = Line(points)
    below = max((knot for knot in points if knot <= x), default=min(points))
    above = min((knot for knot in points if knot >= x), default=None)
    if above is None:
        assert line(x) >= points[max(points)]
    else:
        low, high = sorted((points[below], points[above]))
        assert low * (1 - 1e-12) <= line(x) <= high * (1 + 1e-12)


@given(st.dictionaries(NUMBERS, st.floats(0, 1e3), min_size=2, max_size=8), st.floats(0, 2e4), st.floats(0, 2e4))
def test_a_line_through_rising_points_never_falls(points: dict[int, float], x: float, y: float) -> None:
    rising = Line(dict(zip(sorted(points), sorted(points.values()), strict=True)))
    low, high = sorted((x, y))
    assert rising(low) <= rising(high) * (1 + 1e-12) + 1e-12


def test_a_line_goes_on_behind_its_last_knot_and_is_level_before_its_first() -> None:
    line = Line({10: 1.0, 20: 3.0})
    assert (line(0), line(15), line(25)) == (1.0, 2.0, 4.0)
    assert Line({10: 3.0, 20: 1.0})(30) == 1.0
    assert Line({10: 3.0})(99) == 3.0


def test_a_weighted_sum_is_exact_at_the_knots_of_all() -> None:
    total = weighted_sum([(2, Line({0: 0.0, 4: 4.0})), (1, Line({0: 0.0, 1: 5.0, 4: 5.0}))])
    assert [total(x) for x in (0, 0.5, 1, 2, 4)] == [0.0, 3.5, 7.0, 9.0, 13.0]


GRID = st.lists(st.integers(0, 100), min_size=2, max_size=4, unique=True)


@given(GRID, GRID, GRID, st.tuples(*[st.integers(-2, 5)] * 4), st.tuples(*[st.floats(0, 1)] * 3))
def test_on_a_full_grid_a_linear_function_is_met_everywhere(
    xs: list[int], ys: list[int], zs: list[int], factors: tuple[int, ...], shares: tuple[float, ...]
) -> None:
    def function(x: float, y: float, z: float) -> float:
        return 1000 + factors[0] * x + factors[1] * y + factors[2] * z + factors[3] * x * y

    surface = Surface({(x, y, z): function(x, y, z) for x in xs for y in ys for z in zs})
    point = [min(axis) + share * (max(axis) - min(axis)) for axis, share in zip((xs, ys, zs), shares, strict=True)]
    assert surface(*point) == pytest.approx(function(*point))


def test_a_slice_that_does_not_reach_a_point_is_passed_over() -> None:
    points = {(x, y): float(10 * x + y) for x in (0, 2, 4) for y in (0, 50, 100)}
    points |= {(3, y): 0.0 for y in (60, 100)}  # measured there only, and strange
    surface = Surface(points)
    assert surface(3, 50) == 80.0
    assert surface(3, 60) == 0.0
    assert surface(2.5, 80) == pytest.approx((100 + 0) / 2)


def test_outside_of_what_was_measured_a_surface_goes_on() -> None:
    surface = Surface({(x, y): float(x + y) for x in (0, 1, 2) for y in (0, 10, 20)})
    assert surface(3, 5) == 8.0
    assert surface(1, 30) == 31.0
    assert surface(3, 30) == 33.0


def test_in_a_hole_the_nearest_slice_answers() -> None:
    surface = Surface({(0, 0): 1.0, (5, 9): 3.0})
    assert (surface(1, 5), surface(4, 5)) == (1.0, 3.0)
