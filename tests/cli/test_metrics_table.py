"""How the tables of the command line write times."""

from __future__ import annotations

import pytest

from nanovllm.cli.metrics_table import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (12.34e-6, "12.3 µs"),
        (0.9994e-3, "999 µs"),
        (0.9996e-3, "1 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (999.4, "999 s"),
        (999.6, "1,000 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_a_time_has_three_digits_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
