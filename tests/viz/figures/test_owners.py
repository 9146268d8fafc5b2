"""Requests are told apart by readers of every kind of sight, and their names are legible."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.viz.test_palette import CLEARLY_APART, READERS, contrast, seen
from viz import palette
from viz.figures.owners import OWNER_COLOURS, ink_on, owner_colour

STATES = (palette.SHARED.light, palette.CACHED.light, palette.FREE.light)


@pytest.mark.parametrize("reader", READERS)
def test_owners_stay_apart_from_each_other_and_from_blocks_without_one(reader: str) -> None:
    for a, b in combinations([*OWNER_COLOURS, *STATES], 2):
        colours = [seen(colour, READERS[reader]) for colour in (a, b)]
        distance = sum((p - q) ** 2 for p, q in zip(*colours, strict=True)) ** 0.5
        assert distance >= CLEARLY_APART, f"{a} and {b} look alike"


@pytest.mark.parametrize("colour", [*OWNER_COLOURS, *STATES])
def test_words_are_written_in_the_ink_that_stands_out_more(colour: str) -> None:
    chosen = contrast(ink_on(colour), colour)
    assert chosen >= 3.5
    assert chosen >= 0.8 * max(contrast("#FFFFFF", colour), contrast("#1B1F24", colour))


def test_colours_repeat() -> None:
    assert owner_colour(len(OWNER_COLOURS) + 1) == OWNER_COLOURS[1]
