"""How meanings look in this terminal: the palette's colours and glyphs, or letters where there is only ASCII."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from rich.console import Console
from rich.style import Style

from viz import palette
from viz.palette import Look

_LIGHT_GROUNDS = ("7", "15")
_PLAIN = str.maketrans({"–": "-", "…": "~", "─": "-", "│": "|", "·": "-", "×": "x", "←": "<-", "→": "->"})


_FAINT = (palette.FREE, palette.CACHED, palette.REMAINING)
"""Colours made to fill areas: a glyph drawn in them would hardly be seen, so they go under it."""


@dataclass(frozen=True)
class Theme:
    """``is_ascii``: the terminal shows nothing else. Colours are left out by the console, if it has none."""

    is_ascii: bool = False
    is_light: bool = False

    @classmethod
    def of(cls, console: Console) -> Theme:
        """What suits a console: a light ground only if the terminal says that it has one."""
        ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
        return cls(is_ascii=not console.encoding.startswith("utf"), is_light=ground in _LIGHT_GROUNDS)

    def mark(self, look: Look) -> str:
        """The one character that stands for a meaning."""
        return look.letter if self.is_ascii else look.glyph

    def style(self, look: Look, *, bold: bool = False) -> Style:
        """A meaning's colour on the ground, which is painted under everything."""
        return _style(look, self.is_light, bold)

    def text(self, text: str) -> str:
        """Text that may go to the terminal: one line, no control characters, ASCII if need be."""
        if self.is_ascii:
            text = text.translate(_PLAIN).encode("ascii", "replace").decode()
        return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


@lru_cache(maxsize=256)
def _style(look: Look, is_light: bool, bold: bool) -> Style:
    over, under = (palette.MUTED, look) if look in _FAINT else (look, palette.GROUND)
    colours = (over.light, under.light) if is_light else (over.dark, under.dark)
    return Style(color=colours[0], bgcolor=colours[1], bold=bold or None)
