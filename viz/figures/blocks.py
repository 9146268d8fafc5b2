"""Which request holds which KV block in which step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viz import palette
from viz.figures.axis import StepAxis, StepRange, along_steps
from viz.figures.canvas import GROUND, Key, count_whole, heading, style, width_pt
from viz.figures.history import CACHED, FREE, SHARED, BoolArray, History, IntArray, Source
from viz.figures.owners import OWNER_COLOURS, ink_on, owner_colour
from viz.figures.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS, MAX_ROWS, MAX_DETAILED_BLOCKS = 1200, 500, 40

BlockOwners = NDArray[np.int32]
"""Codes as in ``BlockChanges``, shape [blocks, columns]."""


def block_map(
    source: Source | History, *, steps: StepRange | None = None, by_time: bool = False, ax: Axes | None = None
) -> Figure:
    """One row a block, one column a step: in the colour of the request that holds the block while the step computes.

    Of a pool with more than ``MAX_ROWS`` blocks a row shows several neighbouring blocks, in the colour that most of
    them have. Small pools carry the requests' names.
    """
    return BLOCK_MAP.figure(source, steps, by_time, ax)


def _draw(ax: Axes, history: History, axis: StepAxis) -> None:
    columns = axis.samples(MAX_COLUMNS)
    owners = block_owners(history, columns)
    binned, blocks_per_row = bin_blocks(owners, MAX_ROWS)
    is_detailed = history.num_blocks <= MAX_DETAILED_BLOCKS
    style(ax)
    along_steps(ax, axis)
    ax.set_ylim(history.num_blocks - 0.5, -0.5)
    ax.set_ylabel("KV block")
    count_whole(ax.yaxis)
    if is_detailed:
        _draw_runs(ax, history, axis, owners, columns < 0)
    else:
        _draw_image(ax, axis, binned, columns < 0, history.num_blocks)
    note = f"a row is {blocks_per_row} blocks: what most of them are" if blocks_per_row > 1 else ""
    heading(ax, history.title("Who holds each KV block"), _keys(owners, is_detailed), history.problem, note)


def _height_in(history: History, axis: StepAxis) -> float:
    per_row = 0.2 if history.num_blocks <= MAX_DETAILED_BLOCKS else 0.05
    return min(6.0, 1.3 + max(history.num_blocks, 4) * per_row)


def block_owners(history: History, columns: IntArray) -> BlockOwners:
    """Who holds each block in the steps at these positions, in ascending order; -1 repeats the one before."""
    changes = history.blocks
    columns = np.maximum.accumulate(columns)
    column = np.searchsorted(columns, changes.position, side="left")
    seen = column < len(columns)
    # Each change is written where it first shows, the later over the earlier, and carried on to the right.
    written = np.zeros((history.num_blocks, len(columns)), dtype=np.int32)
    written[changes.block[seen], column[seen]] = np.flatnonzero(seen) + 1
    latest = np.maximum.accumulate(written, axis=1)
    return np.concatenate(([FREE], changes.owner)).astype(np.int32)[latest]


def bin_blocks(owners: BlockOwners, max_rows: int) -> tuple[BlockOwners, int]:
    """Rows of several blocks each, if there are more than ``max_rows``. Returns them and the blocks a row stands for.

    A row is what most of its blocks are (in use, shared, cached or free; in this order where equally many are), and
    shows of those in use the owner with most of them.
    """
    num_blocks = len(owners)
    size = -(-num_blocks // max_rows)
    if size == 1:
        return owners, 1
    missing = -num_blocks % size
    padded = np.concatenate((owners, np.repeat(owners[-1:], missing, axis=0)))
    members = [padded[index::size] for index in range(size)]
    states = (SHARED, CACHED, FREE)
    counts = [sum((member == state).astype(np.int32) for member in members) for state in states]
    counts.insert(0, size - sum(counts))
    winner = np.argmax(counts, axis=0)
    return np.choose(winner, [_most_frequent_owner(padded, size), *states]), size


def _most_frequent_owner(padded: BlockOwners, size: int) -> BlockOwners:
    """Of each group of ``size`` blocks; FREE where it has no owner at all."""
    groups = np.sort(padded.reshape(-1, size, padded.shape[1]), axis=1)
    # In a sorted group, the most frequent value is the one whose run is longest.
    best = np.full_like(groups[:, 0], FREE)
    length, best_length = np.zeros_like(best), np.zeros_like(best)
    for index in range(size):
        member = groups[:, index]
        continues = member == groups[:, index - 1] if index else np.zeros(member.shape, dtype=np.bool_)
        length = np.where(member < 0, 0, np.where(continues, length + 1, 1))
        best = np.where(length > best_length, member, best)
        best_length = np.maximum(length, best_length)
    return best


def owner_runs(owners: BlockOwners) -> list[tuple[int, int, int, int]]:
    """The image in pieces: (block, first column, last column, code) of each run of equal codes in a row."""
    runs = []
    for block, row in enumerate(owners):
        starts = np.flatnonzero(np.diff(row, prepend=row[0] + 1))
        stops = np.append(starts[1:], len(row))
        runs += [(block, int(start), int(stop) - 1, int(row[start])) for start, stop in zip(starts, stops, strict=True)]
    return runs


# ---- drawing ---------------------------------------------------------------------------------------------------------

_STATES = {SHARED: palette.SHARED, CACHED: palette.CACHED, FREE: palette.FREE}
_HATCHES = {SHARED: "....", CACHED: "////", FREE: ""}


def _colour(owner: int) -> str:
    return owner_colour(owner) if owner >= 0 else _STATES[owner].light


def _draw_image(ax: Axes, axis: StepAxis, owners: BlockOwners, is_idle: BoolArray, num_blocks: int) -> None:
    from matplotlib.colors import ListedColormap

    colours = [*(look.light for look in reversed(_STATES.values())), *OWNER_COLOURS]
    codes = np.where(owners < 0, -1 - owners, owners % len(OWNER_COLOURS) + len(_STATES))
    ax.imshow(
        np.ma.masked_array(codes, np.broadcast_to(is_idle, codes.shape)),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        extent=(*axis.bounds, num_blocks - 0.5, -0.5),
        aspect="auto",
        interpolation="nearest",
    )


def _draw_runs(ax: Axes, history: History, axis: StepAxis, owners: BlockOwners, is_idle: BoolArray) -> None:
    """Every block as a strip of pieces, each with the name of the request that holds it where there is room."""
    from matplotlib.collections import PolyCollection

    edges = np.linspace(*axis.bounds, owners.shape[1] + 1)
    points_per_unit = width_pt(ax) / (axis.bounds[1] - axis.bounds[0])
    by_code: dict[int, list[list[tuple[float, float]]]] = {}
    for block, first, last, code in owner_runs(np.where(is_idle, _NO_STEP, owners)):
        if code == _NO_STEP:
            continue
        left, right, top, bottom = float(edges[first]), float(edges[last + 1]), block - 0.45, block + 0.45
        by_code.setdefault(code, []).append([(left, top), (right, top), (right, bottom), (left, bottom)])
        if code >= 0:
            _draw_name(ax, str(history.requests[code].request), code, (left, right), block, points_per_unit)
    for code, corners in by_code.items():
        ax.add_collection(
            PolyCollection(
                corners, facecolor=_colour(code), edgecolor=GROUND, linewidth=0.7, hatch=_HATCHES.get(code, "")
            ),
            autolim=False,
        )


_NO_STEP = -4


def _draw_name(ax: Axes, name: str, owner: int, place: tuple[float, float], block: int, points_per_unit: float) -> None:
    if (place[1] - place[0]) * points_per_unit >= len(name) * 5 + 2:
        ax.text(
            place[0] + 2.5 / points_per_unit,
            block,
            name,
            fontsize=7,
            color=ink_on(_colour(owner)),
            ha="left",
            va="center_baseline",
            zorder=3,
            clip_on=True,
        )


def _keys(owners: BlockOwners, is_hatched: bool) -> list[Key]:
    present = set(np.unique(owners).tolist())
    keys = [Key(palette.IN_USE, "in use by one request, a colour each")] if max(present) >= 0 else []
    hatches = _HATCHES if is_hatched else {}
    return keys + [Key(look, look.label, hatches.get(code, "")) for code, look in _STATES.items() if code in present]


BLOCK_MAP = Panel(_draw, _height_in)
