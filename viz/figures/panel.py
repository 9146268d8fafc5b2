"""The two sorts of picture, each drawn alone, in axes that are given, or stacked with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from viz.figures.axis import StepAxis, StepRange, step_axis
from viz.figures.canvas import axes_or_new, figure_of
from viz.figures.historian import history_of
from viz.figures.history import History, Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Data = TypeVar("Data")


@dataclass(frozen=True)
class Panel:
    """A picture along the steps: how to draw it, and how high it wants to be. Stacked ones share their axis."""

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


@dataclass(frozen=True)
class Sheet(Generic[Data]):
    """A picture of a moment, with axes of its own: how to draw what was read from a trace (and the words for what is
    wrong with the trace), and how high it wants to be."""

    draw: Callable[[Axes, Data, str | None], None]
    height_in: Callable[[Data], float]

    def figure(self, data: Data, problem: str | None, ax: Axes | None = None) -> Figure:
        """Draw it."""
        ax = axes_or_new(ax, self.height_in(data))
        self.draw(ax, data, problem)
        return figure_of(ax)
