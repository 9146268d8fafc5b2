"""Draws how the blocks of a preempted request come to the one that could not go on without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanovllm.trace.events import RequestId
from viz import palette
from viz.figures.boxes import draw_arrow, draw_box, draw_ghost, draw_text, lay_out
from viz.figures.canvas import WIDTH_IN, Key, heading, shortened
from viz.figures.handover import BlockHandover, PoolFrame, block_handover_data
from viz.figures.history import Source, problem_of
from viz.figures.owners import owner_colour
from viz.figures.panel import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_BLOCKS, MAX_TABLES = 5, 6
"""Longer tables show their last blocks, longer lists of requests only those that take part and the next ones."""
_LABEL, _GAP, _LEAST_WIDTH = 1.9, 0.7, 16.0
_PAUSE = "; "
"""Where a remark goes on in the next line."""


def block_handover(source: Source, step: int | None = None, *, ax: Axes | None = None) -> Figure:
    """Block tables and free list before, while and after the first growth of a step that had to preempt for it.

    ``step`` None: the first that preempts a request for another. Raises ``UserError`` for a step that does not.
    """
    return BLOCK_HANDOVER.figure(block_handover_data(source, step), problem_of(source), ax)


def _draw(ax: Axes, data: BlockHandover, problem: str | None) -> None:
    frames = _drawn_frames(data)
    grid = _Grid.of(data, frames)
    lay_out(ax, grid.width, grid.height)
    for column in range(len(frames)):
        _draw_frame(ax, grid, data, frames, column)
    _draw_moves(ax, grid, data, frames)
    keys = [
        Key(palette.CACHED, palette.CACHED.label, "////"),
        Key(palette.FREE, palette.FREE.label),
        Key(palette.SHARED, palette.SHARED.label, "...."),
    ]
    title = f"Step {data.step}: {data.request} gets what the preemption of {_names(data.victims)} frees"
    if not data.taken:
        title = f"Step {data.step}: {data.request} finds no block and no one else to preempt"
    heading(ax, title, keys[: 3 if data.kept else 2], problem)


def _height_in(data: BlockHandover) -> float:
    grid = _Grid.of(data, _drawn_frames(data))
    return 0.62 + grid.height * WIDTH_IN / grid.width


def _drawn_frames(data: BlockHandover) -> list[PoolFrame]:
    """Of several preemptions only the first and the last, so that a row of frames stays legible."""
    first, preemptions, growth = (
        data.frames[0],
        data.frames[1 : len(data.victims) + 1],
        data.frames[1 + len(data.victims) :],
    )
    return [first, *(preemptions if len(preemptions) <= 2 else [preemptions[0], preemptions[-1]]), *growth]


def _names(requests: Sequence[RequestId], limit: int = 4) -> str:
    names = ", ".join(str(request) for request in requests[:limit])
    return names if len(requests) <= limit else f"{names} and {len(requests) - limit} more"


@dataclass(frozen=True)
class _Grid:
    """Which requests are shown, one row each, over the free list; how many boxes a row has; where the frames begin."""

    rows: tuple[RequestId, ...]
    num_boxes: int
    pitch: float
    width: float
    head: float
    """Room for the words above the tables."""

    @classmethod
    def of(cls, data: BlockHandover, frames: Sequence[PoolFrame]) -> _Grid:
        holders = [request for request, table in frames[0].tables.items() if table]
        actors = (data.request, *data.victims[: MAX_TABLES - 1])
        others = [request for request in holders if request not in (data.request, *data.victims)]
        chosen = {*actors, *others[: max(0, MAX_TABLES - len(actors))]}
        rows = tuple(request for request in holders if request in chosen)
        lengths = [len(frame.tables.get(row, ())) for frame in frames for row in rows]
        num_boxes = min(MAX_BLOCKS, max(2, *lengths, *(len(frame.free) for frame in frames)))
        frame_width = _LABEL + num_boxes
        width = max(_LEAST_WIDTH, len(frames) * (frame_width + _GAP) - _GAP + 0.1)
        head = 1.5 if any(_PAUSE in frame.remark for frame in frames) else 1.1
        return cls(rows, num_boxes, (width - frame_width) / max(1, len(frames) - 1), width, head)

    @property
    def height(self) -> float:
        """In boxes."""
        return self.head + len(self.rows) + 1.35

    def place(self, column: int, row: int, index: int) -> tuple[float, float]:
        """The middle of a box. Row -1 is the free list."""
        y = self.head + (len(self.rows) + 0.8 if row < 0 else row + 0.4)
        return column * self.pitch + _LABEL + index + 0.5, y

    def indices(self, blocks: Sequence[int], is_free_list: bool = False) -> dict[int, int]:
        """Block -> its box. Of a long table the last blocks are shown, after a box that counts the others; of a long
        free list the first, before it."""
        if len(blocks) <= self.num_boxes:
            return {block: index for index, block in enumerate(blocks)}
        if is_free_list:
            return {block: index for index, block in enumerate(blocks[: self.num_boxes - 1])}
        return {block: index for index, block in enumerate(blocks[1 - self.num_boxes :], start=1)}


def _draw_frame(ax: Axes, grid: _Grid, data: BlockHandover, frames: Sequence[PoolFrame], column: int) -> None:
    frame, before = frames[column], frames[max(0, column - 1)]
    draw_text(ax, (column * grid.pitch + 0.08, 0.2), frame.action, is_bold=True)
    for line, remark in enumerate(frame.remark.split(_PAUSE)):
        draw_text(ax, (column * grid.pitch + 0.08, 0.62 + 0.4 * line), remark, is_muted=True)
    num_holders = Counter(block for table in frame.tables.values() for block in table)
    for row, request in enumerate(grid.rows):
        table, lost = frame.tables.get(request, ()), before.tables.get(request, ())
        x, y = grid.place(column, row, 0)
        draw_text(ax, (x - 0.65, y), shortened(str(request), 6), is_bold=bool(table), is_muted=not table, align="right")
        for block, index in grid.indices(table).items():
            look = palette.SHARED if num_holders[block] > 1 else None
            colour = owner_colour(row) if look is None else look.light
            place = grid.place(column, row, index)
            draw_box(ax, place, str(block), colour, "...." if look else "", block in data.taken)
        num_ghosts = 0 if table else min(len(lost), grid.num_boxes)
        for index in range(num_ghosts):
            draw_ghost(ax, grid.place(column, row, index))
        if request in frame.waiting and not table:
            draw_text(ax, (x - 0.42 + num_ghosts, y), "waits", is_muted=True)
        _draw_rest(ax, grid.place(column, row, 0), len(table) - grid.num_boxes + 1)
    _draw_free_list(ax, grid, data, frames, column)


def _draw_free_list(ax: Axes, grid: _Grid, data: BlockHandover, frames: Sequence[PoolFrame], column: int) -> None:
    """Blocks that have left it since the frame before leave an empty place."""
    free, cached = frames[column].free, frames[column].cached
    x, y = grid.place(column, -1, 0)
    draw_text(ax, (x - 0.65, y), "free list", is_muted=True, align="right")
    is_last = column > 0 and frames[column - 1].free[: len(data.taken)] == data.taken
    shown = frames[column - 1].free if is_last else free
    for block, index in grid.indices(shown, is_free_list=True).items():
        look = palette.CACHED if block in cached else palette.FREE
        if block in free:
            draw_box(
                ax,
                grid.place(column, -1, index),
                str(block),
                look.light,
                "////" if block in cached else "",
                block in data.taken,
            )
        else:
            draw_ghost(ax, grid.place(column, -1, index))
    if not shown:
        draw_text(ax, (x - 0.42, y), "empty", is_muted=True)
    _draw_rest(ax, grid.place(column, -1, grid.num_boxes - 1), len(shown) - grid.num_boxes + 1)


def _draw_rest(ax: Axes, place: tuple[float, float], count: int) -> None:
    """How many blocks there is no room for, if there are any."""
    if count > 1:
        draw_text(ax, place, f"+{count}", is_muted=True, align="center")


def _draw_moves(ax: Axes, grid: _Grid, data: BlockHandover, frames: Sequence[PoolFrame]) -> None:
    """From the table that a block leaves to the free list, and from there to the table that takes it."""
    if not data.taken:
        return
    block, column = data.taken[0], len(frames) - 2
    free = grid.indices(frames[column].free, is_free_list=True)
    for row, request in enumerate(grid.rows):
        lost = frames[column - 1].tables.get(request, ())
        index = grid.indices(lost).get(block)
        if index is not None and not frames[column].tables.get(request) and block in free:
            draw_arrow(ax, grid.place(column, row, index), grid.place(column, -1, free[block]), palette.PREEMPTED.light)
    gained = grid.indices(frames[-1].tables[data.request])
    if block in free and block in gained and data.request in grid.rows:
        row = grid.rows.index(data.request)
        start, end = grid.place(column + 1, -1, free[block]), grid.place(column + 1, row, gained[block])
        is_steep = start[1] - end[1] > end[0] - start[0]
        draw_arrow(ax, start, end, bend=0.3 if is_steep else 0.0)


BLOCK_HANDOVER = Sheet(_draw, _height_in)
