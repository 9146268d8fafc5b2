"""One figure of many runs over two settings: a table whose cells have the colour of their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nanovllm.errors import UserError
from viz import palette
from viz.figures.canvas import GROUND, INK, MUTED, TEXT_PT, figure_of, heading, mixed, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SPREAD = 20.0
"""From this ratio of most to least on, colours are logarithmic."""
_DARK = 0.55
"""From this share of the way to the darkest colour on, numbers are light."""


def heatmap(
    values: Mapping[tuple[str, str], float | None],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    names: tuple[str, str],
    title: str,
) -> Figure:
    """A table with a number at each ``(row, column)``, darker the more it is. ``names``: of what the rows and what the
    columns are. A place without a number is crossed out. Raises ``UserError`` if there is no number at all.
    """
    numbers = [value for value in values.values() if value is not None]
    if not numbers:
        raise UserError("a heat map is drawn from several runs, there is none with a number")
    sheet = new_figure(width_in=2.2 + 0.95 * len(columns), height_in=1.5 + 0.42 * len(rows))
    ax = sheet.add_subplot()
    shade = _shading(min(numbers), max(numbers))
    tell = _whole if all(float(number).is_integer() for number in numbers) else _rounded
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            _draw_place(ax, x, y, values.get((row, column)), shade, tell)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(length=0, labelsize=TEXT_PT, labelcolor=INK)
    ax.set_ylabel(names[0], fontsize=TEXT_PT, color=INK)
    ax.set_xlabel(names[1], fontsize=TEXT_PT, color=INK)
    heading(ax, title)
    return figure_of(ax)


def _shading(least: float, most: float) -> Callable[[float], float]:
    """From a number to its share of the way from the lightest colour to the darkest."""
    if most == least:
        return lambda value: 0.5
    if least > 0 and most > _SPREAD * least:
        return lambda value: math.log(value / least) / math.log(most / least)
    return lambda value: (value - least) / (most - least)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _rounded(value: float) -> str:
    """To three digits, those before the point whole."""
    return f"{value:#,.3g}".rstrip(".") if abs(value) < 999.5 else f"{value:,.0f}"


def _draw_place(
    ax: Axes, x: int, y: int, value: float | None, shade: Callable[[float], float], tell: Callable[[float], str]
) -> None:
    from matplotlib.patches import Rectangle

    share = 0.0 if value is None else shade(value)
    colour = GROUND if value is None else mixed(palette.FREE.light, palette.PREFILL.light, share)
    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=GROUND, linewidth=1.5))
    text = "×" if value is None else tell(value)
    ink = MUTED if value is None else GROUND if share > _DARK else INK
    ax.text(x, y, text, ha="center", va="center", fontsize=TEXT_PT, color=ink)
