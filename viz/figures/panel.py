"""A picture along the steps: drawn alone, in axes that are given, or stacked with others on one axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viz.figures.axis import StepAxis, StepRange, step_axis
from viz.figures.canvas import axes_or_new, figure_of
from viz.figures.historian import history_of
from viz.figures.history import History, Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Panel:
    """How to draw it, and how high it wants to be."""

    draw: Callable[[Axes, History, StepAxis], None]
    height_in: Callable[[History, StepAxis], float]

    def figure(
        self, source: Source | History, steps: StepRange | None, by_time: bool, ax: Axes | None = None
    ) -> Figure:
        """Draw the given steps of a run. Raises ``UserError`` if there are none of them."""
        history = history_of(source)
        axis = step_axis(history, steps, by_time)
        ax = axes_or_new(ax, self.height_in(history, axis))
        self.draw(ax, history, axis)
        return figure_of(ax)
