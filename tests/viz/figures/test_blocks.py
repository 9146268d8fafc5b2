"""The block map: who holds which block, and what is left of it when rows stand for many blocks."""

from __future__ import annotations

import numpy as np

from tests.viz.figures import runs
from viz.figures import history_of
from viz.figures.blocks import bin_blocks, block_owners, owner_runs
from viz.figures.history import CACHED, FREE, SHARED


def test_blocks_change_hands() -> None:
    history = history_of(runs.preempted_from_the_tail())
    owners = block_owners(history, np.arange(3))
    assert owners.tolist() == [[0, 0, 0], [1, 1, 3], [2, 2, CACHED], [3, 0, 0]]


def test_shared_and_cached_blocks() -> None:
    history = history_of(runs.reused_and_chunked())
    names = [life.request for life in history.requests]
    owners = block_owners(history, np.arange(3, 7))
    assert names == ["A", "B"]
    assert owners[:6].tolist() == [
        [0, 1, 1, 1],
        [0, 1, 1, 1],
        [0, CACHED, CACHED, CACHED],
        [0, CACHED, CACHED, CACHED],
        [FREE, 1, 1, 1],
        [FREE, 1, 1, 1],
    ]


def test_blocks_in_use_by_several() -> None:
    history = history_of(runs.shared_blocks_stay())
    assert block_owners(history, np.arange(4))[0].tolist() == [0, 0, SHARED, SHARED]


def test_columns_without_a_step_repeat_the_one_before() -> None:
    history = history_of(runs.preempted_from_the_tail())
    assert block_owners(history, np.array([0, -1, 1]))[3].tolist() == [3, 3, 0]


def test_a_row_is_what_most_of_its_blocks_are() -> None:
    groups = [[7, 7, 5, CACHED], [CACHED, CACHED, CACHED, 7], [1, 2, FREE, FREE], [SHARED, SHARED, 3, FREE], [FREE]]
    column = [code for group in groups for code in group]
    rows, size = bin_blocks(np.array(column, dtype=np.int32)[:, np.newaxis], max_rows=5)
    assert size == 4
    assert rows[:, 0].tolist() == [7, CACHED, 1, SHARED, FREE]


def test_few_blocks_keep_their_rows() -> None:
    owners = np.arange(6, dtype=np.int32).reshape(3, 2)
    rows, size = bin_blocks(owners, max_rows=3)
    assert size == 1
    assert rows is owners


def test_runs_cover_the_map() -> None:
    owners = np.array([[1, 1, 2], [FREE, FREE, FREE]], dtype=np.int32)
    assert owner_runs(owners) == [(0, 0, 1, 1), (0, 2, 2, 2), (1, 0, 2, FREE)]
