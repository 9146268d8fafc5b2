"""Parts of a sweep: which cells meet conditions, and what varies in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import ConfigError
from sim.sweeps import Row, Sweep
from sim.sweeps.part import Conditions, part_of, part_of_result, read_conditions
from sim.sweeps.run import SweepResult
from tests.sim.sweeps.small import small_sweep

TOGETHER = {"gpu+tensor_parallel_size": [("h200", 1), ("l4", 1), ("l4", 4)]}
SWEEP = small_sweep(rate=[2, 2.5], prompt_len=[8, "uniform:4,8"], **TOGETHER)


def rows_of(sweep: Sweep) -> list[Row]:
    return [{"cell": cell.key, **cell.settings} for cell in sweep.cells()]


ROWS = rows_of(SWEEP)


def chosen(*where: tuple[str, str]) -> Conditions:
    return read_conditions(SWEEP, where)


@given(st.lists(st.sampled_from(ROWS).flatmap(lambda row: st.sampled_from([(n, row[n]) for n in SWEEP.varied]))))
def test_the_part_has_the_cells_of_the_rows(where: list[tuple[str, Any]]) -> None:
    texts = [(name, str(value)) for name, value in where]
    wanted = [
        row for row in ROWS if all(row[name] in [value for other, value in where if other == name] for name, _ in where)
    ]
    if not wanted:
        with pytest.raises(ConfigError):
            chosen(*texts)
        return
    keys = frozenset(row["cell"] for row in ROWS[::2])
    part = part_of_result(SweepResult(sweep=SWEEP, rows=ROWS, reused=keys), chosen(*texts))
    assert part.rows == wanted
    assert sorted(row["cell"] for row in rows_of(part.sweep)) == sorted(row["cell"] for row in wanted)
    assert part.num_reused == sum(row["cell"] in keys for row in wanted)
    assert set(part.sweep.names) == set(SWEEP.names)


def test_what_is_chosen_down_to_one_value_varies_no_longer() -> None:
    assert part_of(SWEEP, chosen(("rate", "2"), ("policy", "mixed"), ("policy", "prefill_first"))).varied == (
        *("policy", "max_num_seqs", "prompt_len", "gpu", "tensor_parallel_size"),
    )
    assert "gpu" in part_of(SWEEP, chosen(("gpu", "l4"))).varied
    assert part_of(SWEEP, chosen(("tensor-parallel-size", "4"))).settings["gpu"] == "l4"
    assert part_of(replace(SWEEP, vary={"rate": [2]}), {}).varied == ("rate",), "where nothing was chosen"


def test_a_part_all_of_whose_cells_fail_is_a_part() -> None:
    sweep = Sweep(vary={"policy": ["prefill_first", "mixed"], "admit_by": ["prompt", "chunk"]})
    impossible = read_conditions(sweep, [("policy", "prefill_first"), ("admit_by", "chunk")])
    assert len(part_of(sweep, impossible).cells()) == 1


AXES = (
    "cells have policy=prefill_first,mixed; max_num_seqs=2,4,8; rate=2,2.5; prompt_len=8,uniform:4,8; gpu=h200,l4; "
    "tensor_parallel_size=1,4"
)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ([("rate", "2"), ("rate", "3")], "rate=3"),
        ([("rate", "fast")], "rate=fast"),
        ([("speed", "3")], "speed=3"),
        ([("num_requests", "8")], "num_requests=8"),
        ([("gpu", "h200"), ("tensor_parallel_size", "4")], "gpu=h200, tensor_parallel_size=4"),
    ],
)
def test_what_no_cell_has_is_refused_with_what_there_is(where: list[tuple[str, str]], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(*where)
    assert str(caught.value) == f"where={told!r} is not allowed: {AXES}"


def test_of_many_values_some_are_told() -> None:
    with pytest.raises(ConfigError, match=r"cells have seed=0,1,2,3,4,5,6,7,8,9,10,11 and 38 more"):
        read_conditions(Sweep(vary={"seed": list(range(50))}), [("seed", "50")])
    with pytest.raises(ConfigError, match="nothing varies in this sweep"):
        read_conditions(Sweep(), [("seed", "50")])
