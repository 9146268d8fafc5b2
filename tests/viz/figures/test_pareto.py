"""Who is on a frontier, and what the pictures of sweeps show."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import UserError
from tests.viz.figures.drawn import flaws, texts_of
from viz.figures import CliffPoint, ParetoPoint, heatmap, pareto, pareto_frontier, pool_cliffs
from viz.figures.pareto import MAX_NUMBERED

NUMBERS = st.integers(1, 6).map(float)
POINTS = st.lists(st.builds(ParetoPoint, st.text(), NUMBERS, NUMBERS), min_size=1, max_size=30)


def beats(one: ParetoPoint, other: ParetoPoint) -> bool:
    at_least = one.throughput >= other.throughput and one.latency_s <= other.latency_s
    return at_least and (one.throughput, one.latency_s) != (other.throughput, other.latency_s)


@given(POINTS)
def test_the_frontier_is_all_that_nobody_beats(points: list[ParetoPoint]) -> None:
    frontier = pareto_frontier(points)
    places = [(point.throughput, point.latency_s) for point in frontier]
    expected = {(p.throughput, p.latency_s) for p in points if not any(beats(other, p) for other in points)}
    assert places == sorted(expected)
    assert all(point in points for point in frontier)


def test_a_frontier_is_numbered_and_listed() -> None:
    points = [
        ParetoPoint("slow but soon", 100, 0.1, "a"),
        ParetoPoint("beaten", 90, 0.2, "a"),
        ParetoPoint("fast and late", 2000, 0.9, "b"),
    ]
    texts = texts_of(pareto(points, throughput="output tokens/s per GPU"))
    for text in (
        "slow but soon",
        "fast and late",
        "1",
        "2",
        "3 runs, 2 on the frontier",
        "The frontier",
        "100 per s, 100 ms",
        "a",
        "b",
    ):
        assert text in texts
    assert "beaten" not in texts
    assert any(text.startswith("output tokens/s per GPU") for text in texts)


def test_of_a_long_frontier_some_points_are_named() -> None:
    points = [ParetoPoint(f"run {i}", i + 1, i + 1) for i in range(100)]
    texts = texts_of(pareto(points))
    assert {"100 runs, 100 on the frontier", f"The frontier: {MAX_NUMBERED} of 100"} <= texts
    named = [text for text in texts if text.startswith("run ")]
    assert len(named) == MAX_NUMBERED
    assert {"run 0", "run 99"} <= set(named)


def test_a_heat_map_shows_every_number() -> None:
    values = {("a", "x"): 0.001234, ("a", "y"): 12345.6, ("b", "x"): None}
    texts = texts_of(heatmap(values, rows=["a", "b"], columns=["x", "y"], names=("rows", "columns"), title="figure"))
    assert {"0.00123", "12,346", "a", "b", "x", "y", "rows", "columns", "figure"} <= set(texts)
    assert "×" in texts


def test_a_heat_map_of_equal_numbers() -> None:
    assert "3" in texts_of(heatmap({("a", "x"): 3.0}, rows=["a"], columns=["x"], names=("r", "c"), title="t"))


def test_numbers_of_a_heat_map_are_told_alike() -> None:
    def told(*numbers: float) -> set[str]:
        columns = [str(place) for place in range(len(numbers))]
        values = {("a", column): number for column, number in zip(columns, numbers, strict=True)}
        return texts_of(heatmap(values, rows=["a"], columns=columns, names=("r", "c"), title="t")) - {*columns}

    assert {"9.72", "11.0", "800", "1,234"} <= told(9.722, 10.98, 800.2, 1234.4)
    assert {"9", "11", "1,234"} <= told(9, 11, 1234)


def test_cliffs_of_several_loads() -> None:
    lines = {
        name: [CliffPoint(size, 100 // size, 3.0 / size, 10.0 * size, 0.5) for size in (2, 4, 400)] for name in "ab"
    }
    texts = texts_of(pool_cliffs({**lines, "c": [CliffPoint(4, 0, None)]}))
    assert {"Preemptions", "Throughput", "Prefix cache", "a", "b", "c", "KV blocks in the pool"} <= set(texts)


def test_texts_keep_apart() -> None:
    points = [ParetoPoint(f"policy prefill_first, max_num_seqs 512, rate {i}", 100 * i, 0.1 * i) for i in range(1, 15)]
    columns = [f"{2**i}" for i in range(8)]
    values = {("prefill_first", column): 123456.0 for column in columns}
    names = ("policy", "max_num_batched_tokens")
    lines = {
        "policy prefill_first": [CliffPoint(size, 3, 0.5, 1000.0, 0.4) for size in (100, 200, 400, 800, 1600, 3200)]
    }
    assert flaws(pareto(points)) == []
    assert (
        flaws(heatmap(values, rows=["prefill_first"], columns=columns, names=names, title="output_tokens_per_s")) == []
    )
    assert flaws(pool_cliffs(lines)) == []


def test_nothing_cannot_be_drawn() -> None:
    for draw in (
        lambda: pareto([]),
        lambda: heatmap({("a", "x"): None}, rows=["a"], columns=["x"], names=("r", "c"), title="t"),
        lambda: pool_cliffs({}),
        lambda: pool_cliffs({name: [CliffPoint(4, 0, None)] for name in "abcd"}),
    ):
        with pytest.raises(UserError):
            draw()
