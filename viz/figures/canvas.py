"""What all figures have in common: paper, letters, headings and keys. matplotlib is imported when a figure is drawn.

No global state: figures are made without pyplot and without touching rcParams, so that they can be drawn anywhere.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanovllm.errors import UserError
from viz import palette
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

INK, MUTED, GROUND = palette.INK.light, palette.MUTED.light, palette.GROUND.light
TITLE_PT, TEXT_PT, SMALL_PT = 11.0, 9.0, 8.0
WIDTH_IN = 10.0
MOST_LETTERS = 100
"""In a line of a figure: ids may have any length."""


def new_figure(width_in: float = WIDTH_IN, height_in: float = 3.0) -> Figure:
    """An empty figure that lays itself out. Raises ``UserError`` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ModuleNotFoundError:
        raise UserError("figures need matplotlib, which is not installed: pip install 'nanovllm-lab[viz]'") from None

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    return Figure(figsize=(width_in, height_in), layout=layout, facecolor=GROUND)


def axes_or_new(ax: Axes | None, height_in: float, width_in: float = WIDTH_IN) -> Axes:
    """The axes to draw in, made where none are given."""
    return new_figure(width_in, height_in).add_subplot() if ax is None else ax


def figure_of(ax: Axes) -> Figure:
    """The whole figure that the axes belong to."""
    from matplotlib.figure import SubFigure

    figure = ax.figure
    return figure.figure if isinstance(figure, SubFigure) else figure


@contextmanager
def told_as_it_is(figure: Figure) -> Iterator[None]:
    """While a figure is drawn: ids and names of files are no formulas, whatever dollar signs are in them, and letters
    that the font lacks are boxes without a word. (Numbers of logarithmic axes are formulas.)"""
    from matplotlib.text import Text

    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    formulas = {label for axis in axes for label in axis.get_ticklabels(which="both") if axis.get_scale() == "log"}
    for text in figure.findobj(Text):
        if text not in formulas:
            text.set_parse_math(False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def size_pt(ax: Axes) -> tuple[float, float]:
    """About how wide and high the axes will be, in points: what they have before they are laid out, which leaves
    somewhat more of the width and somewhat less of the height."""
    points_per_pixel = 72 / figure_of(ax).dpi
    return ax.bbox.width * points_per_pixel * 1.2, ax.bbox.height * points_per_pixel * 0.85


def width_pt(ax: Axes) -> float:
    """See ``size_pt``."""
    return size_pt(ax)[0]


def mixed(colour: str, other: str, share: float) -> str:
    """A ``#rrggbb`` on the way from ``colour`` to ``other``."""
    channels = [[int(text[i : i + 2], 16) for i in (1, 3, 5)] for text in (colour, other)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(*channels, strict=True))


@dataclass(frozen=True)
class Key:
    """One entry of the key above the axes: a bar whose full ``thickness`` is 1, or a glyph."""

    look: Look
    label: str
    hatch: str = ""
    thickness: float = 1.0
    is_glyph: bool = False


def style(ax: Axes) -> None:
    """Quiet axes: no box, small ticks, legible numbers."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
        ax.spines[side].set_linewidth(0.8)
    ax.tick_params(labelsize=TEXT_PT, labelcolor=INK, color=MUTED, length=3, width=0.8)
    ax.xaxis.label.set(size=TEXT_PT, color=INK)
    ax.yaxis.label.set(size=TEXT_PT, color=INK)


def count_whole(axis: Axis) -> None:
    """Ticks at whole numbers, with commas in the long ones and no sign."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")


def heading(ax: Axes, title: str, keys: Sequence[Key] = (), problem: str | None = None, note: str = "") -> None:
    """What stands above the axes: the title; beside or below it a note, or instead what is wrong with the trace; the
    key."""
    num_key_rows = _draw_keys(ax, keys) if keys else 0
    pad = 6 + 15.0 * num_key_rows
    width = width_pt(ax)
    remark = note if problem is None else shortened(problem, int(width / _BOLD_PT))
    colour, weight = (MUTED, "normal") if problem is None else (palette.PREEMPTED.light, "bold")
    if remark and len(title) * 7 + len(remark) * _BOLD_PT + 20 > width:
        ax.annotate(
            remark,
            (0, 1),
            (0, pad),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=SMALL_PT,
            fontweight=weight,
            color=colour,
        )
        pad += 12
    elif remark:
        ax.set_title(remark, loc="right", fontsize=SMALL_PT, fontweight=weight, color=colour, pad=pad)
    ax.set_title(shortened(title, MOST_LETTERS), loc="left", fontsize=TITLE_PT, fontweight="bold", color=INK, pad=pad)


_BOLD_PT = 5.2
"""About the width of a letter of a remark."""


def _draw_keys(ax: Axes, keys: Sequence[Key]) -> int:
    """Draw the key in as many rows as its width needs, and return their number."""
    needed_pt = sum(len(key.label) * 5.0 + 30 for key in keys)
    num_rows = min(len(keys), math.ceil(needed_pt / width_pt(ax)))
    ax.legend(
        handles=[_handle(key) for key in keys],
        labels=[key.label for key in keys],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.25,
        ncols=math.ceil(len(keys) / num_rows),
        frameon=False,
        fontsize=TEXT_PT,
        labelcolor=INK,
        handlelength=1.5,
        handletextpad=0.5,
        columnspacing=1.4,
        borderpad=0.1,
    )
    return num_rows


def mark_problem(figure: Figure | SubFigure, problem: str) -> None:
    """Say at the top of a figure of several panels what is wrong with the trace."""
    figure.suptitle(
        shortened(problem, 120),
        x=0.99,
        ha="right",
        fontsize=SMALL_PT,
        fontweight="bold",
        color=palette.PREEMPTED.light,
    )


def shortened(text: str, limit: int) -> str:
    """A text of at most ``limit`` letters, with a mark where it was cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _handle(key: Key) -> Artist:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if key.is_glyph:
        return Line2D([], [], linestyle="", marker=MARKERS[key.look.name], color=key.look.light, markersize=6)
    if key.thickness < 0.3:
        return Line2D([], [], color=key.look.light, linewidth=2)
    return Patch(facecolor=key.look.light, edgecolor=GROUND, hatch=key.hatch, linewidth=0)


MARKERS = {
    "hit": "D",
    "preempted": "v",
    "finished": "s",
    "prefill": "^",
    "decode": "o",
    "first": "o",
    "second": "^",
    "third": "s",
}
"""The palette's glyphs as matplotlib knows them."""
