"""The KV pool as a grid of blocks in the order of their ids; of a large pool, several blocks in one cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viz import palette
from viz.live.follower import Follower
from viz.live.row import Cells, Row, fill, rule
from viz.live.theme import Theme

_FREE, _CACHED, _IN_USE, _SHARED, _ALLOCATED, _EVICTED = range(len(palette.BLOCKS))
_NUM_AT_REST = _SHARED + 1
_WORDS = ("free", "cached", "in use", "shared", "new", "evicted")
_GROUP = 8
"""So many blocks stand together: that makes them easier to count."""

States = npt.NDArray[np.uint8]


class _Grid(NamedTuple):
    """``per_cell`` blocks in a cell, ``per_row`` cells in a row, of which ``group`` stand together."""

    per_cell: int
    per_row: int
    group: int
    label: int
    """Width of the numbers at the left."""


def rows_wanted(num_blocks: int, width: int) -> int:
    """So high the panel would be with one block in each cell."""
    per_row, _ = _cells_in_groups(num_blocks, width, gap=1)
    return 1 + -(-num_blocks // per_row) + len(_legend_columns(num_blocks, width))


def pool_panel(follower: Follower, width: int, height: int, theme: Theme) -> list[Cells]:
    """Grid and legend in rows that fit exactly."""
    pool = follower.replay.pool
    states = block_states(follower)
    legend = _legend(states, follower, width, theme)
    room = height - 1 - len(legend)
    grid = _lay_out(pool.num_blocks, width, room)
    title = f"KV pool: {pool.num_blocks:,} blocks of {pool.block_size:,}"
    if grid.per_cell > 1:
        title = f"{pool.num_blocks:,} KV blocks, {grid.per_cell:,} a cell"
    rows = [rule(title, width, theme)]
    rows += fill(_rows(_binned(states, grid.per_cell), grid, width, theme), room, width, theme)
    return [*rows, *legend]


def block_states(follower: Follower) -> States:
    """Of each block, what it is: an index of ``palette.BLOCKS``. The step's own changes hide what came of them."""
    pool = follower.replay.pool
    references = np.array(pool.ref_counts, dtype=np.int64)
    holds_content = np.zeros(pool.num_blocks, dtype=np.bool_)
    holds_content[list(pool.block_hashes)] = True
    at_rest = np.where(holds_content, _CACHED, _FREE)
    states: States = np.where(references == 0, at_rest, np.minimum(references, 2) + _CACHED).astype(np.uint8)
    states[list(follower.allocated)] = _ALLOCATED
    states[list(follower.evicted)] = _EVICTED
    return states


# ---- the grid --------------------------------------------------------------------------------------------------------


def _lay_out(num_blocks: int, width: int, room: int) -> _Grid:
    """As generous as there is room for: blocks apart from each other, side by side, or several in a cell."""
    for gap in (1, 0):
        per_row, label = _cells_in_groups(num_blocks, width, gap)
        if per_row * room >= num_blocks:
            return _Grid(1, per_row, 1 if gap else _GROUP, label)
    label = len(str(num_blocks - 1))
    cells = width - label - 2
    return _Grid(-(-num_blocks // (cells * room)), cells, cells, label)


def _cells_in_groups(num_blocks: int, width: int, gap: int) -> tuple[int, int]:
    """How many blocks a row holds, a multiple of the group, and how wide their numbers are."""
    label = len(str(num_blocks - 1))
    group_width = _GROUP * (1 + gap) + (1 - gap)
    return max(1, (width - label - 2 + 1) // group_width) * _GROUP, label


def _binned(states: States, per_cell: int) -> States:
    """One state for each cell: what most of its blocks are; or what the step did to any of them."""
    if per_cell == 1:
        return states
    num_cells = -(-len(states) // per_cell)
    cells = np.repeat(np.arange(num_cells), per_cell)[: len(states)]
    counts = np.bincount(cells * len(palette.BLOCKS) + states, minlength=num_cells * len(palette.BLOCKS))
    counts = counts.reshape(num_cells, len(palette.BLOCKS))
    binned: States = counts[:, :_NUM_AT_REST].argmax(axis=1).astype(np.uint8)
    for change in (_ALLOCATED, _EVICTED):
        binned[counts[:, change] > 0] = change
    return binned


def _rows(cells: States, grid: _Grid, width: int, theme: Theme) -> list[Cells]:
    rows = []
    for first in range(0, len(cells), grid.per_row):
        row = Row(theme).add(f" {first * grid.per_cell:>{grid.label}} ", palette.MUTED)
        looks = [palette.BLOCKS[state] for state in cells[first : first + grid.per_row].tolist()]
        for start in range(0, len(looks), grid.group):
            row.add(" " if start else "").marks(looks[start : start + grid.group])
        rows.append(row.cells(width))
    return rows


# ---- the legend ------------------------------------------------------------------------------------------------------


def _legend_columns(num_blocks: int, width: int) -> list[range]:
    """Which entries stand in each row: it depends on the size of the pool alone, so that nothing moves."""
    widest = max(map(len, _WORDS)) + len(f"{num_blocks:,}") + 4
    per_row = max(2, min(len(_WORDS), width // widest))
    return [range(first, min(first + per_row, len(_WORDS))) for first in range(0, len(_WORDS), per_row)]


def _legend(states: States, follower: Follower, width: int, theme: Theme) -> list[Cells]:
    """Each state with its number of blocks; free, cached, in use and shared are all blocks."""
    pool = follower.replay.pool
    num_shared = sum(count > 1 for count in pool.ref_counts)
    num_evicted = len(follower.evicted)
    numbers = (
        len(pool.free_blocks) - pool.num_cached_free_blocks,
        pool.num_cached_free_blocks,
        pool.num_blocks_in_use - num_shared,
        num_shared,
        int((states == _ALLOCATED).sum()),
        num_evicted,
    )
    digits = len(f"{pool.num_blocks:,}")
    rows = []
    for columns in _legend_columns(pool.num_blocks, width):
        row, column_width = Row(theme), width // len(columns)
        for position, index in enumerate(columns):
            row.pad(position * column_width).add(" ").mark(palette.BLOCKS[index])
            row.add(f" {numbers[index]:>{digits},}").add(f" {_WORDS[index]}", palette.MUTED)
        rows.append(row.cells(width))
    return rows
