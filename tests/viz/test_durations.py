"""Durations as people read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from viz.durations import duration, unit_of


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (12345.6, "12,346 s"),
        (999.6, "1,000 s"),
        (123.4, "123 s"),
        (1.5, "1.5 s"),
        (0.9996, "1 s"),
        (0.9994, "999 ms"),
        (0.25, "250 ms"),
        (0.00123, "1.23 ms"),
        (0.0009996, "1 ms"),
        (0.0000456, "45.6 µs"),
        (0.0, "0 s"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, told: str) -> None:
    assert duration(seconds) == told


@given(st.floats(1e-6, 1e9))
def test_durations_are_told_to_three_digits_and_never_with_an_exponent(seconds: float) -> None:
    found = re.fullmatch(r"([\d,.]+) (s|ms|µs)", duration(seconds))
    assert found is not None
    unit_s = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[found[2]]
    assert float(found[1].replace(",", "")) * unit_s == pytest.approx(seconds, rel=0.006)


def test_an_axis_is_in_milliseconds_where_all_is_less_than_a_second() -> None:
    assert [unit_of(longest_s) for longest_s in (0.0, 0.2, 1.0, 70.0)] == [
        ("s", 1.0),
        ("ms", 1e-3),
        ("s", 1.0),
        ("s", 1.0),
    ]
