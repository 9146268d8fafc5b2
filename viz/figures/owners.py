"""Colours that tell the requests of one figure apart. They mean nothing else, and repeat when there are many."""

from __future__ import annotations

OWNER_COLOURS = ("#2F86C9", "#E9C46A", "#7B3294", "#6EC6FF", "#D1603D", "#CFA0C8")
"""In an order in which neighbours differ in lightness; apart from the palette's greens and greys of blocks that are
shared, cached or free."""


def owner_colour(row: int) -> str:
    """The colour of the request in this row."""
    return OWNER_COLOURS[row % len(OWNER_COLOURS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on ``colour`` (``#rrggbb``; luminance of Rec. 709)."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#FFFFFF" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.52 else "#1B1F24"
