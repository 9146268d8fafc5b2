"""Linear interpolation in tables of measurements, whose points need not fill a grid."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence


class Line:
    """A function of one number, given at knots: exact there, linear between them.

    Before the first knot it has that knot's value; behind the last one it goes on as between the last two, but never
    falls.
    """

    __slots__ = ("_last_slope", "knots", "values")

    def __init__(self, points: Mapping[float, float]) -> None:
        """``points``: knot -> value, at least one."""
        assert points, "a line needs a point"
        self.knots = sorted(points)
        self.values = [points[knot] for knot in self.knots]
        self._last_slope = 0.0
        if len(self.knots) > 1:
            rise, run = self.values[-1] - self.values[-2], self.knots[-1] - self.knots[-2]
            self._last_slope = max(0.0, rise / run)

    def __call__(self, x: float) -> float:
        """The value at ``x``."""
        knots, values = self.knots, self.values
        above = bisect_left(knots, x)
        if above == len(knots):
            return values[-1] + self._last_slope * (x - knots[-1])
        if above == 0 or knots[above] == x:
            return values[above]
        below = above - 1
        share = (x - knots[below]) / (knots[above] - knots[below])
        return values[below] + share * (values[above] - values[below])


def weighted_sum(terms: Iterable[tuple[float, Line]]) -> Line:
    """The sum of weight times line: one line with the knots of all."""
    terms = list(terms)
    knots = {knot for _, line in terms for knot in line.knots}
    return Line({knot: sum(weight * line(knot) for weight, line in terms) for knot in knots})


class Surface:
    """A function of several numbers, given at points: linear from slice to slice of its first number, and within a
    slice likewise in the others.

    A slice may have been measured in a part of the others' range only; where it does not reach, the next one does.
    """

    __slots__ = ("_box", "_knots", "_slices")

    def __init__(self, points: Mapping[tuple[float, ...], float]) -> None:
        """``points``: numbers, two or more, -> value."""
        rows: dict[float, dict[tuple[float, ...], float]] = {}
        for (first, *others), value in points.items():
            rows.setdefault(first, {})[tuple(others)] = value
        self._knots = sorted(rows)
        self._slices = [_function(rows[knot]) for knot in self._knots]
        ranges = zip(*points, strict=True)
        self._box = [(min(values), max(values)) for values in ranges]

    def __call__(self, *point: float) -> float:
        """The value at ``point``. Outside the measured range as for a ``Line``, in one number after the other."""
        inside = [min(max(x, low), high) for x, (low, high) in zip(point, self._box, strict=True)]
        return self._at(point, inside)

    @property
    def ends(self) -> tuple[float, ...]:
        """The most that was measured of each number."""
        return tuple(high for _, high in self._box)

    def is_within(self, *point: float) -> bool:
        """Whether some measured point has at least as much of every number."""
        first, *others = point
        return any(
            others[0] <= chosen.knots[-1] if isinstance(chosen, Line) else chosen.is_within(*others)
            for chosen in self._slices[bisect_left(self._knots, first) :]
        )

    def reaches(self, point: Sequence[float]) -> bool:
        """Whether ``point`` lies within the range that was measured."""
        return all(low <= x <= high for x, (low, high) in zip(point, self._box, strict=True))

    def _at(self, point: Sequence[float], inside: Sequence[float]) -> float:
        """``inside``: the point, moved into the range measured; it decides which slices reach it."""
        first, others, others_inside = point[0], point[1:], inside[1:]
        above = bisect_left(self._knots, first)
        if above < len(self._knots) and self._knots[above] == first and self._reaches(above, others_inside):
            return self._slice_at(above, others, others_inside)
        lower = [index for index in range(above - 1, -1, -1) if self._reaches(index, others_inside)][:2]
        upper = next((i for i in range(above, len(self._knots)) if self._reaches(i, others_inside)), None)
        used = lower[::-1] if upper is None else [*lower[:1], upper]
        chosen = {self._knots[index]: self._slice_at(index, others, others_inside) for index in used}
        if not chosen:  # a hole of the table: the nearest slice says what it can
            nearest = min(range(len(self._knots)), key=lambda index: abs(self._knots[index] - first))
            return self._slice_at(nearest, others, others_inside)
        return Line(chosen)(first)

    def _reaches(self, index: int, others: Sequence[float]) -> bool:
        chosen = self._slices[index]
        if isinstance(chosen, Line):
            return chosen.knots[0] <= others[0] <= chosen.knots[-1]
        return chosen.reaches(others)

    def _slice_at(self, index: int, others: Sequence[float], others_inside: Sequence[float]) -> float:
        chosen = self._slices[index]
        return chosen(others[0]) if isinstance(chosen, Line) else chosen._at(others, others_inside)


def _function(points: Mapping[tuple[float, ...], float]) -> Line | Surface:
    if len(next(iter(points))) == 1:
        return Line({point[0]: value for point, value in points.items()})
    return Surface(points)
