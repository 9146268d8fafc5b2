"""Boxes with names in them, and arrows between them: how queues and block tables are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from viz.figures.canvas import GROUND, INK, MOST_LETTERS, MUTED, SMALL_PT, TEXT_PT, shortened, style, width_pt
from viz.figures.owners import ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = tuple[float, float]
"""The middle of a box; boxes are one unit wide and high, y grows downward."""
BOX = 0.84
"""The side of a box."""
LineStyle = Literal["solid"] | tuple[float, tuple[float, float]]


def lay_out(ax: Axes, width: float, height: float) -> None:
    """Axes that measure in boxes, with nothing around them."""
    style(ax)
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_aspect("equal", anchor="NW")
    ax.set_axis_off()


def draw_box(ax: Axes, place: Place, text: str, colour: str, hatch: str = "", is_marked: bool = False) -> None:
    """A filled box; a marked one has a thick edge."""
    from matplotlib.patches import FancyBboxPatch

    x, y = place
    ax.add_patch(
        FancyBboxPatch(
            (x - BOX / 2, y - BOX / 2),
            BOX,
            BOX,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=colour,
            edgecolor=GROUND if hatch else colour,
            hatch=hatch,
            linewidth=0.0,
            zorder=3,
        )
    )
    if is_marked:
        _draw_edge(ax, place, INK, 2.0, "solid")
    backing = {"facecolor": colour, "edgecolor": "none", "pad": 1.2} if hatch else None
    ax.text(
        x,
        y,
        shortened(text, 6),
        fontsize=TEXT_PT + 1 if len(text) <= 3 else SMALL_PT - 1,
        fontweight="bold" if len(text) <= 3 else "normal",
        color=ink_on(colour),
        ha="center",
        va="center_baseline",
        zorder=4,
        bbox=backing,
    )


def draw_ghost(ax: Axes, place: Place) -> None:
    """Where a box was a moment ago."""
    _draw_edge(ax, place, MUTED, 1.0, (0, (2, 2)))


def _draw_edge(ax: Axes, place: Place, colour: str, width: float, line: LineStyle) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = place
    ax.add_patch(
        FancyBboxPatch(
            (x - BOX / 2, y - BOX / 2),
            BOX,
            BOX,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor="none",
            edgecolor=colour,
            linewidth=width,
            linestyle=line,
            zorder=4,
        )
    )


def draw_arrow(ax: Axes, start: Place, end: Place, colour: str = INK, bend: float = 0.0) -> None:
    """From the edge of one box to that of another; ``bend`` > 0 bows it to the right of its way."""
    shrink_pt = 0.45 * width_pt(ax) / ax.get_xlim()[1]
    _annotate_arrow(ax, start, end, colour, shrink_pt, bend)


def draw_arrow_below(ax: Axes, start: Place, end: Place, colour: str = INK) -> None:
    """Between two boxes of one row, below those that stand between them."""
    (x0, y0), (x1, y1) = start, end
    _annotate_arrow(ax, (x0, y0 + BOX / 2), (x1, y1 + BOX / 2), colour, 1.0, 0.6 / (x1 - x0))


def _annotate_arrow(ax: Axes, start: Place, end: Place, colour: str, shrink_pt: float, bend: float) -> None:
    ax.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 1.5,
            "shrinkA": shrink_pt,
            "shrinkB": shrink_pt,
            "connectionstyle": f"arc3,rad={bend}",
        },
        zorder=5,
    )


def draw_text(
    ax: Axes,
    place: Place,
    text: str,
    *,
    is_bold: bool = False,
    is_muted: bool = False,
    align: Literal["left", "center", "right"] = "left",
) -> None:
    """A line of text, from here, around here or to here; cut where the sheet would have no room for it."""
    ax.text(
        *place,
        shortened(text, MOST_LETTERS),
        fontsize=TEXT_PT,
        fontweight="bold" if is_bold else "normal",
        color=MUTED if is_muted else INK,
        ha=align,
        va="center",
        zorder=4,
    )
