"""How the numbers of many rows change over a run, kept as the points where they bend.

A row (a request, a block) has a few numbers at each frame. Some stand still until they jump; others, such as the
tokens of a decoding request, also grow by the same amount frame after frame. A point says: from this frame on these
values, and this growth per frame. So the state at any frame follows from one point per row, found by bisection:
seeking costs the same everywhere, and stepping back is as exact as stepping forward.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from operator import add, sub

import numpy as np
from numpy.typing import ArrayLike

Values = tuple[int, ...]


@dataclass(slots=True)
class _Point:
    """The last point of a row."""

    index: int
    expected: Values
    """The values at the next ``put``, if the row goes on like this."""
    growth: Values | None
    """Per frame. None until the frame after the point settles it."""


class Track:
    """Points of many rows, gathered frame by frame.

    ``steady`` columns jump, ``growing`` columns may also grow. At each frame, ``put`` every row that may have
    changed and every row in ``moving``.
    """

    def __init__(self, steady: tuple[str, ...], growing: tuple[str, ...] = ()) -> None:
        self.moving: set[int] = set()
        """Rows that grow, or of which it is not known yet."""
        self._num_steady = len(steady)
        self._still = (0,) * (len(steady) + len(growing))
        self._rows = array("q")
        self._frames = array("q")
        self._columns = {name: array("q") for name in (*steady, *growing)}
        self._growths = {f"{name}_growth": array("q") for name in growing}
        self._last_points: dict[int, _Point] = {}

    def put(self, row: int, frame: int, values: Values) -> None:
        """The row's values at this frame, later than its last one: first the steady ones, then the growing."""
        last = self._last_points.get(row)
        if last is not None:
            if last.growth is None and values[: self._num_steady] == last.expected[: self._num_steady]:
                self._settle(row, last, values)
                return
            if values == last.expected:
                if last.growth is not self._still:
                    last.expected = tuple(map(add, values, last.growth or self._still))
                return
        self._add_point(row, frame, values)

    def end(self, row: int) -> None:
        """Nobody will ask for this row after its last point."""
        self.moving.discard(row)
        del self._last_points[row]

    def _add_point(self, row: int, frame: int, values: Values) -> None:
        self._last_points[row] = _Point(len(self._rows), values, None if self._growths else self._still)
        self._rows.append(row)
        self._frames.append(frame)
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        for column in self._growths.values():
            column.append(0)
        if self._growths:
            self.moving.add(row)

    def _settle(self, row: int, point: _Point, values: Values) -> None:
        """The frame after a point: what has grown since goes on growing."""
        growth = tuple(map(sub, values, point.expected))
        if any(growth):
            point.growth, point.expected = growth, tuple(map(add, values, growth))
        else:
            point.growth = self._still
            self.moving.discard(row)
        for column, by in zip(self._growths.values(), growth[self._num_steady :], strict=True):
            column[point.index] = by

    def columns(self, num_rows: int) -> dict[str, ArrayLike]:
        """``first``: where each row's points begin (``num_rows + 1`` offsets); ``frame`` and the values of each
        point, row by row and in order of time."""
        rows = np.asarray(self._rows, dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        table: dict[str, ArrayLike] = {
            "first": np.searchsorted(rows[order], np.arange(num_rows + 1)),
            "frame": np.asarray(self._frames, dtype=np.int64)[order],
        }
        for name, column in (self._columns | self._growths).items():
            table[name] = np.asarray(column, dtype=np.int64)[order]
        return table
