"""Steps that lie outside of what a cost model was measured on: which those are, and that a simulation counts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from sim import simulate
from sim.calibration import Calibration, measured_calibrations, read_calibration
from sim.calibration.measure import MeasuredStep
from sim.cluster import simulate_cluster
from sim.cost_models import BoundedCostModel, Table
from sim.cost_models.fitted import Fitted
from sim.cost_models.interpolation import Surface
from sim.cost_models.latency_tables import read_latency_tables
from sim.cost_models.shape import KINDS, StepShape, largest_shapes
from sim.sweeps.row import run_cell
from tests.sim.comparison_files import example_calibration
from tests.sim.latency_files import write_tables
from tests.sim.runs import requests
from tests.sim.sweeps.small import small_sweep
from tests.sim.test_cost_models import scheduled

MEASURED = [
    scheduled((99, 1), (49, 1), is_prefill=False),
    scheduled((9, 1), (9, 1), (9, 1), is_prefill=False),
    scheduled((0, 64), is_prefill=True),
    scheduled((30, 2), is_prefill=True),
]


def calibration_of(batches: list[ScheduledBatch]) -> Calibration:
    steps = [MeasuredStep(StepShape.of(batch), 1e-3, 1e-4) for batch in batches]
    return msgspec.structs.replace(example_calibration(), steps=steps)


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return calibration_of(MEASURED).cost_model("qwen3-0.6b")


@pytest.mark.parametrize("batch", MEASURED)
def test_what_was_measured_lies_within(fitted: Fitted, batch: ScheduledBatch) -> None:
    assert not fitted.step_time(batch).is_extrapolated


@pytest.mark.parametrize(
    ("batch", "is_extrapolated"),
    [
        (scheduled((0, 1), is_prefill=False), False),  # fewer than ever measured
        (scheduled((69, 1), (69, 1), (9, 1), is_prefill=False), False),  # most sequences and tokens at once
        (scheduled((100, 1), is_prefill=False), True),  # a longer context
        (scheduled(*[(9, 1)] * 4, is_prefill=False), True),  # more sequences
        (scheduled((69, 1), (69, 1), (69, 1), is_prefill=False), True),  # more attended to in all
        (scheduled((0, 65), is_prefill=True), True),  # more tokens
        (scheduled((0, 2), (0, 2), is_prefill=True), True),  # more sequences than in a step of this kind
        (scheduled((0, 1), (0, 2), is_prefill=True), False),  # mixed: of this kind nothing is known
    ],
)
def test_a_step_with_more_of_anything_than_any_of_its_kind_is_extrapolated(
    fitted: Fitted, batch: ScheduledBatch, is_extrapolated: bool
) -> None:
    step_time = fitted.step_time(batch)
    assert step_time.is_extrapolated is is_extrapolated
    unbounded = Fitted(device=fitted.device, host=fitted.host).step_time(batch)
    assert msgspec.structs.replace(step_time, is_extrapolated=False) == unbounded, "the time is what it ever was"


def test_the_reach_is_told_by_kind_of_step(fitted: Fitted) -> None:
    assert isinstance(fitted, BoundedCostModel)
    assert fitted.measured == (
        "decode steps of up to 3 sequences, contexts of 100 tokens, 150 of all decodes; "
        "prefill steps of up to 1 sequences, contexts of 64 tokens, 64 new tokens"
    )


@pytest.mark.parametrize("name", measured_calibrations())
def test_every_measured_step_of_a_calibration_lies_within(name: str) -> None:
    found = read_calibration(name)
    largest = largest_shapes(step.shape for step in found.steps)
    assert list(largest) == list(KINDS)
    model = found.cost_model(found.model)
    assert not any(model.time_of(step.shape).is_extrapolated for step in found.steps)


# ---- latency tables ----------------------------------------------------------------------------------------------

POINTS = st.tuples(*[st.integers(0, 4)] * 3)


@given(st.sets(POINTS, min_size=1), POINTS)
def test_a_point_lies_within_a_surface_if_a_measured_one_has_as_much_of_everything(
    points: set[tuple[int, ...]], point: tuple[int, ...]
) -> None:
    surface = Surface(dict.fromkeys(points, 1.0))
    has_more = any(all(a >= b for a, b in zip(measured, point, strict=True)) for measured in points)
    assert surface.is_within(*point) is has_more


@pytest.mark.parametrize(
    ("batch", "is_extrapolated"),
    [
        (scheduled((1999, 1), (9, 1), is_prefill=False), False),
        (scheduled((2000, 1), is_prefill=False), True),
        (scheduled(*[(9, 1)] * 5, is_prefill=False), True),  # 4 decodes were measured
        (scheduled((1000, 100), is_prefill=True), False),
        (scheduled((1001, 100), is_prefill=True), True),
        (scheduled((0, 101), is_prefill=True), True),
    ],
)
def test_latency_tables_know_their_ends(tmp_path: Path, batch: ScheduledBatch, is_extrapolated: bool) -> None:
    table = Table(tables=read_latency_tables(write_tables(tmp_path)), num_layers=2)
    assert table.step_time(batch).is_extrapolated is is_extrapolated
    assert isinstance(table, BoundedCostModel)
    assert table.measured == (
        "steps of up to 1,001 tokens, 100 sequences, 4 decodes, contexts of 2,000 tokens, chunks of 100 after 1,000"
    )


def test_graph_sizes_count_with_what_they_compute_in_vain(tmp_path: Path) -> None:
    table = Table(tables=read_latency_tables(write_tables(tmp_path)), num_layers=2, graph_sizes=(2000,))
    assert table.step_time(scheduled((0, 10), is_prefill=True)).is_extrapolated


# ---- runs --------------------------------------------------------------------------------------------------------

CONFIG = Config(kvcache_block_size=16, num_kvcache_blocks=100)


@pytest.mark.parametrize("lookahead", [False, True])
def test_a_simulation_counts_its_extrapolated_steps(fitted: Fitted, lookahead: bool) -> None:
    load = requests((60, 46, 0.0))  # a prefill step, then decodes of contexts 61 to 105, of which 5 are above 100
    config = replace(CONFIG, lookahead=lookahead)
    result = simulate(config, load, cost_model=fitted)
    assert (result.num_steps, result.num_extrapolated_steps) == (46, 5)
    replicas = simulate_cluster(config, [*load, *requests((60, 44, 0.0))], num_replicas=2, cost_model=fitted)
    assert (replicas.num_steps, replicas.num_extrapolated_steps) == (90, 5 + 3)


def test_a_model_without_measurements_extrapolates_nothing() -> None:
    assert simulate(CONFIG, requests((600, 900, 0.0))).num_extrapolated_steps == 0


def test_a_row_of_a_sweep_tells_them() -> None:
    sweep = small_sweep(calibration="h200-qwen3-0.6b", kvcache_block_size=256, prompt_len=["1000", "6000"])
    few, many = (run_cell(cell)["num_extrapolated_steps"] for cell in sweep.cells()[-2:])
    assert few == 0 < many
