"""What a fitted cost model counts: tokens between knots, padded sizes, shared blocks, and what its terms miss."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanovllm.engine.batch import ScheduledBatch
from sim.cost_models.fitted import CONTEXT_KNOTS, TOKEN_KNOTS, Sizes, between
from sim.cost_models.misfit import Misfit
from sim.cost_models.shape import StepShape, num_shared_blocks
from tests.sim.runs import decode_of


@given(st.integers(0, 5000))
def test_every_token_is_counted_once(num_tokens: int) -> None:
    for knots in (TOKEN_KNOTS, CONTEXT_KNOTS):
        assert sum(between(knots, num_tokens)) == num_tokens
        assert len(between(knots, num_tokens)) == len(knots)


def test_shared_leading_blocks_are_counted_for_all_but_one() -> None:
    assert num_shared_blocks(decode_of([1, 2, 3], [1, 2, 4], [1, 2, 5, 6])) == 4
    assert num_shared_blocks(decode_of([1, 2], [3, 4], [5])) == 0
    assert num_shared_blocks(decode_of([1, 2], [1, 2], [7, 8], [7])) == 2 + 1
    # One that shares less hides not what the others share; and there are groups within groups.
    assert num_shared_blocks(decode_of([1, 2, 3, 4], [1, 2, 3, 5], [1, 9], [1, 2, 3, 4, 6])) == 3 + 1 + 4
    shape = StepShape.of(ScheduledBatch(decode_of([1, 2, 3], [1, 2, 4]), False), 4)
    assert (shape.decode_kv_tokens, shape.shared_kv_tokens, shape.kind) == (24, 8, "decode")


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=8))
def test_shared_blocks_are_those_that_a_tree_of_tables_saves(paths: list[list[int]]) -> None:
    # A block's id tells its whole path, as in a pool of blocks with equal contents.
    tables = [[hash(tuple(path[: depth + 1])) for depth in range(len(path))] for path in paths]
    nodes = {block for table in tables for block in table}
    assert num_shared_blocks(decode_of(*tables)) == sum(map(len, tables)) - len(nodes)


@given(st.lists(st.integers(1, 600), max_size=8), st.integers(1, 700))
def test_a_step_is_padded_to_the_next_size(sizes: list[int], num_tokens: int) -> None:
    found = Sizes(decode=tuple(sorted(set(sizes))))
    shape = StepShape.of(ScheduledBatch(decode_of(*([number] for number in range(num_tokens))), False))
    larger = [size for size in sizes if size >= num_tokens]
    assert found.padded(shape) == (min(larger) if larger else num_tokens)


@given(st.floats(0, 200), st.floats(0, 5000))
def test_a_misfit_lies_between_the_places_around(sequences: float, context: float) -> None:
    misfit = Misfit(sequences=(1, 8, 64), contexts=(100, 2000), factors=((1.0, 1.2), (0.9, 1.1), (1.5, 1.0)))
    assert 0.9 <= misfit.factor(sequences, context) <= 1.5
    assert misfit.factor(8, 2000) == 1.1
    assert misfit.factor(0, 0) == 1.0
    assert misfit.factor(4.5, 100) == pytest.approx(0.95)
