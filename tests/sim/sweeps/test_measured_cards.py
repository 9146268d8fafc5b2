"""Cells whose times were measured: on the card of the measurement, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from nanovllm.config import OPTIONS_OF_REAL_RUNS
from nanovllm.errors import ConfigError
from sim.sweeps import Sweep, run_sweep

MEASURED = {"calibration": "h200-qwen3-0.6b", "num_requests": 3}


def rows_of(**vary: list[Any]) -> list[dict[str, Any]]:
    return run_sweep(Sweep(settings=MEASURED, vary=vary), num_jobs=1).rows


def test_no_row_is_told_of_a_card_that_was_not_measured() -> None:
    plain, measured, other = rows_of(gpu=[None, "h200", "l4"])
    assert (plain["status"], other["status"]) == ("completed", "failed")
    assert {**measured, "cell": "", "gpu": None, "wall_s": 0} == {**plain, "cell": "", "wall_s": 0}
    assert other["error"].startswith("gpu='l4' is not allowed: h200, as the times were measured on 'NVIDIA H200'")


def test_cells_look_ahead_as_the_measured_engine_did_unless_they_say_otherwise() -> None:
    plain, ahead, behind = rows_of(lookahead=[None, True, False])
    assert plain["duration_s"] == ahead["duration_s"] < behind["duration_s"]


def test_a_default_that_is_spelled_out_makes_no_other_cell() -> None:
    [plain] = Sweep(settings={"num_requests": 3}).cells()
    for spelled_out in ({"gpu": "h200"}, {"gpu": None}, {"lookahead": None}):
        [cell] = Sweep(settings={"num_requests": 3, **spelled_out}).cells()
        assert cell.key == plain.key


@pytest.mark.parametrize("name", sorted(OPTIONS_OF_REAL_RUNS))
def test_what_is_for_real_runs_is_no_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}=1 is not allowed: there is no such setting"):
        Sweep(vary={name: [1]})
