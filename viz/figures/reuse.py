"""How much of a load's prompts a prefix cache reuses, by size of the KV pool, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nanovllm.errors import UserError
from viz import palette
from viz.figures.canvas import GROUND, INK, SMALL_PT, Key, figure_of, heading, new_figure, style
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REUSE_PARTS: dict[str, tuple[Look, str, str]] = {
    "found": (palette.HIT, "found in the cache", ""),
    "last": (palette.REMAINING, "last block of its prompt", ""),
    "not_computed": (palette.HELD, "not computed yet", "...."),
    "evicted": (palette.EVICTED, "evicted", "//"),
    "other": (palette.WAITING, "other causes", "xx"),
}
"""What may become of a repeated block: how it is drawn, from bottom to top, and what it is called."""


def prefix_reuse(pools: Mapping[int, Mapping[str, float]], repeat_rate: float | None = None) -> Figure:
    """Bands over the size of the pool, in blocks: shares of all prompt blocks, by the names of ``REUSE_PARTS``.

    ``repeat_rate``: the share that repeats an earlier block, for a line. Raises ``UserError`` for fewer than two pools.
    """
    sizes = sorted(pools)
    if len(sizes) < 2:
        raise UserError(f"a curve over pool sizes is drawn from two or more of them, there is {len(sizes)}")
    sheet = new_figure(height_in=4.2)
    ax = sheet.add_subplot()
    style(ax)
    bottom = [0.0] * len(sizes)
    keys = []
    for name, (look, label, hatch) in REUSE_PARTS.items():
        shares = [pools[size].get(name, 0.0) for size in sizes]
        if not any(shares):
            continue
        top = [below + share for below, share in zip(bottom, shares, strict=True)]
        ax.fill_between(sizes, bottom, top, facecolor=look.light, edgecolor=GROUND, hatch=hatch, linewidth=0)
        keys.append(Key(look, label + _too_thin_to_see(max(shares)), hatch))
        bottom = top
    found = [pools[size].get("found", 0.0) for size in sizes]
    ax.plot(sizes, found, "o-", color=INK, markersize=3.5, linewidth=1.2, zorder=4, clip_on=False)
    _draw_axes(ax, sizes, max([*bottom, repeat_rate or 0.0]))
    if repeat_rate is not None:
        ax.axhline(repeat_rate, color=INK, linewidth=0.8, linestyle="--", zorder=3)
        ax.annotate(
            f"repeats in the prompts: {repeat_rate:.1%}",
            (0, repeat_rate),
            (4, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=SMALL_PT,
            color=INK,
        )
    note = f"{found[0]:.1%} found with {sizes[0]:,} blocks, {found[-1]:.1%} with {sizes[-1]:,}"
    heading(ax, "Reuse of prompt blocks", keys, note=note)
    return figure_of(ax)


def _too_thin_to_see(most: float) -> str:
    if most >= 0.01:
        return ""
    return f" (at most {most:.1%})" if most >= 0.001 else " (less than 0.1%)"


def _draw_axes(ax: Axes, sizes: list[int], most: float) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.set_xscale("log")
    ax.set_xlim(sizes[0], sizes[-1])
    ax.xaxis.set_major_locator(FixedLocator(_spread(sizes)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_ylim(0, min(1.0, most * 1.15 or 1.0))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel("KV blocks in the pool")
    ax.set_ylabel("share of all prompt blocks")


def _spread(sizes: list[int]) -> list[int]:
    """The sizes that have room for their number on a logarithmic axis."""
    kept = [sizes[-1]]
    for size in reversed(sizes):
        if size * (sizes[-1] / sizes[0]) ** 0.07 <= kept[-1]:
            kept.append(size)
    return kept
