"""Rows of the screen: pieces of text, each with its look, and exactly as wide as they have to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment

from viz.live.theme import Theme
from viz.palette import INK, MUTED, Look

Cells = list[Segment]
"""A row that is as wide as it shall be."""


class Row:
    """A row that is being put together from the left."""

    def __init__(self, theme: Theme) -> None:
        self.width = 0
        self._theme = theme
        self._segments: list[Segment] = []

    def add(self, text: str, look: Look = INK, *, bold: bool = False) -> Row:
        """Some text; returns the row itself."""
        text = self._theme.text(text)
        self._segments.append(Segment(text, self._theme.style(look, bold=bold)))
        self.width += cell_len(text)
        return self

    def mark(self, look: Look, times: int = 1, *, bold: bool = False) -> Row:
        """A meaning's glyph; returns the row itself."""
        self._segments.append(Segment(self._theme.mark(look) * times, self._theme.style(look, bold=bold)))
        self.width += times
        return self

    def marks(self, looks: Iterable[Look]) -> Row:
        """A glyph for each of these; returns the row itself."""
        last, times = None, 0
        for look in looks:
            if look is not last:
                if last is not None:
                    self.mark(last, times)
                last, times = look, 0
            times += 1
        return self if last is None else self.mark(last, times)

    def pad(self, width: int) -> Row:
        """Spaces up to this width; returns the row itself."""
        if self.width < width:
            self.add(" " * (width - self.width))
        return self

    def extend(self, cells: Cells) -> Row:
        """Cells that are made already; returns the row itself."""
        self._segments += cells
        self.width += sum(segment.cell_length for segment in cells)
        return self

    def cells(self, width: int) -> Cells:
        """The row, cut or filled to a width."""
        return Segment.adjust_line_length(self._segments, width, self._theme.style(INK))


def shorten(text: str, width: int, theme: Theme) -> str:
    """Text cut to a width, with an ellipsis if that took something away; filled up with spaces."""
    text = theme.text(text)
    if cell_len(text) > width:
        return set_cell_size(text, max(0, width - 1)) + theme.text("…")
    return set_cell_size(text, width)


def wrap(text: str, width: int) -> list[str]:
    """Text in lines of at most this width, broken between words where it can be."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while cell_len(word) > width:
            part = set_cell_size(word, width).rstrip() or word[0]
            lines.append(part)
            word = word[len(part) :]
        line = word
    return [*lines, line] if line or not lines else lines


def clip(lines: list[str], height: int) -> list[str]:
    """The first lines, with an ellipsis if that is not all."""
    if len(lines) <= height:
        return lines
    return [*lines[: height - 1], f"{lines[height - 1][:-1]}…"] if height > 0 else []


def rule(title: str, width: int, theme: Theme, note: str = "") -> Cells:
    """A heading: a line with a title in it, and a note at its right end."""
    row = Row(theme).add("── ", MUTED).add(title, bold=True).add(" ", MUTED)
    note = f" {note} ─" if note and row.width + cell_len(note) + 4 <= width else ""
    row.add("─" * max(0, width - row.width - cell_len(note)), MUTED)
    return row.add(note, MUTED).cells(width)


def fill(rows: Sequence[Cells], height: int, width: int, theme: Theme) -> list[Cells]:
    """As many rows as there is room for: cut, or filled with empty ones."""
    empty = Row(theme).cells(width)
    return [*rows[:height], *[empty] * (height - len(rows))]
