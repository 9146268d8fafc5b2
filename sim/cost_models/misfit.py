"""What a sum of few terms misses: a grid of factors."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import msgspec

MAX_FACTOR = 10.0


class Misfit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much longer decode steps take than their coefficients say, by the number of sequences and the mean number of
    tokens that they attend to. Kernels are launched otherwise for other numbers, and that is no sum of terms."""

    sequences: tuple[int, ...]
    contexts: tuple[int, ...]
    factors: tuple[tuple[float, ...], ...]
    """For each of ``sequences``, for each of ``contexts``."""

    def __post_init__(self) -> None:
        for name in ("sequences", "contexts"):
            places = getattr(self, name)
            if not places or any(a >= b for a, b in pairwise(places)):
                raise ValueError(f"{name} must be in ascending order, at least one")
        if [len(row) for row in self.factors] != [len(self.contexts)] * len(self.sequences):
            raise ValueError("factors must have a row for each of sequences, a number for each of contexts")
        if not all(1 / MAX_FACTOR <= factor <= MAX_FACTOR for row in self.factors for factor in row):
            raise ValueError(f"factors must be between {1 / MAX_FACTOR} and {MAX_FACTOR:.0f}")

    def factor(self, num_sequences: float, context: float) -> float:
        """Between the places of the grid in proportion, beyond them as at its edge."""
        row, row_share = _place(self.sequences, num_sequences)
        column, column_share = _place(self.contexts, context)
        next_row, next_column = min(row + 1, len(self.sequences) - 1), min(column + 1, len(self.contexts) - 1)
        low, high = self.factors[row], self.factors[next_row]
        first = low[column] + column_share * (low[next_column] - low[column])
        second = high[column] + column_share * (high[next_column] - high[column])
        return first + row_share * (second - first)


def _place(places: tuple[int, ...], number: float) -> tuple[int, float]:
    """The last place that is not above ``number``, and how far it is to the next one."""
    place = bisect_right(places, number) - 1
    if place < 0:
        return 0, 0.0
    if place + 1 == len(places):
        return place, 0.0
    return place, (number - places[place]) / (places[place + 1] - places[place])
