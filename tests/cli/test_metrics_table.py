"""How the tables of the command line write times."""

from __future__ import annotations

import pytest

from nanovllm.cli.metrics_table import duration, print_metrics, significant
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.metrics.slo import Slo
from tests.trace.metrics.test_run_metrics import RUN
from tests.trace.runs import preempting_run


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (12.34e-6, "12.3 µs"),
        (0.9994e-3, "999 µs"),
        (0.9996e-3, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (2.0, "2.00 s"),
        (0.02999, "30.0 ms"),
        (99.96, "100 s"),
        (999.4, "999 s"),
        (999.6, "1,000 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_a_time_has_three_digits_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_of_a_column_have_as_many_digits() -> None:
    told = {9.22: "9.220", 10.825: "10.82", 0.5: "0.5000", 999.96: "1,000", 12345.6: "12,346", 0: "0"}
    assert {value: significant(value, 4) for value in told} == told


def test_preemptions_are_told_with_those_they_happened_to(capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics(compute_metrics(preempting_run()))
    [row] = [line for line in capsys.readouterr().out.splitlines() if "preemptions" in line]
    assert "│ 1, of 1 request; 7 tokens recomputed " in row
    print_metrics(compute_metrics(RUN))
    assert "preemptions  │ none " in capsys.readouterr().out


def test_limits_stand_with_the_requests_that_meet_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics(compute_metrics(RUN))
    assert "objective" not in capsys.readouterr().out
    print_metrics(compute_metrics(RUN, slo=Slo(time_to_first_token_s=3, time_per_output_token_s=1.5)))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["time to first token", "3 s", "66.7%"] in rows
    assert ["time per output token", "1.5 s", "33.3%"] in rows
    assert ["all of them", "", "33.3% (1 of 3)"] in rows
    assert ["goodput", "0.14 requests/s, 0.1 output tokens/s"] in rows
    index = "0.833 on average; p10 0.700, p1 0.670, least 0.667; 0.9 or more: 33.3% of the requests"
    assert ["fluidity index", index] in rows
    print_metrics(compute_metrics(RUN, slo=Slo(end_to_end_s=3)))
    assert "fluidity" not in capsys.readouterr().out
