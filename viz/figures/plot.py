"""From a trace to a picture in a file: one kind of figure, or several, one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.errors import FileError, UserError
from nanovllm.trace.events import TraceStarted
from viz.figures.axis import StepRange, step_axis
from viz.figures.block_handover import block_handover
from viz.figures.blocks import BLOCK_MAP
from viz.figures.budget import STEP_TOKENS
from viz.figures.canvas import MUTED, SMALL_PT, new_figure
from viz.figures.historian import history_of
from viz.figures.history import Source, events_of
from viz.figures.inside_step import first_preempting_step
from viz.figures.latency import draw_latencies, latency
from viz.figures.load import KV_USE, QUEUE_LENGTHS
from viz.figures.panel import Panel
from viz.figures.progress import prompt_progress
from viz.figures.queue_in_hand import queue_in_hand
from viz.figures.timeline import TIMELINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS: dict[str, Panel] = {
    "timeline": TIMELINE,
    "blocks": BLOCK_MAP,
    "kv": KV_USE,
    "queues": QUEUE_LENGTHS,
    "tokens": STEP_TOKENS,
}
"""Along the steps; stacked, they share their axis."""

SHEETS_HEIGHT_IN = {"latency": 6.4, "progress": 3.0, "queue": 6.4, "handover": 4.8}
"""The others, which have axes of their own."""

KINDS = (*PANELS, *SHEETS_HEIGHT_IN)
FORMATS = (".png", ".svg")
DPI = 150


def plot(
    source: Source,
    kinds: str | Sequence[str],
    output: str | Path,
    *,
    steps: StepRange | None = None,
    by_time: bool = False,
) -> Path:
    """Draw a trace and write the picture, as PNG or SVG after the name of the file. The same trace makes the same file.

    Arguments as in ``draw``. Raises ``UserError`` for another format or a file that cannot be written.
    """
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise FileError(path, f"is no name for a picture: it must end in {' or '.join(FORMATS)}")
    figure = draw(source, kinds, steps=steps, by_time=by_time)
    import matplotlib

    is_svg = path.suffix.lower() == ".svg"
    _settle(figure)
    try:
        with matplotlib.rc_context({"svg.hashsalt": "nanovllm"}):
            figure.savefig(path, dpi=DPI, metadata={"Date": None} if is_svg else {"Software": None})
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    return path


def draw(
    source: Source, kinds: str | Sequence[str], *, steps: StepRange | None = None, by_time: bool = False
) -> Figure:
    """A figure of these ``kinds`` (names from ``KINDS``; as one text, with commas between them), in this order.

    ``steps``: only these; the kinds that show a single step take the first of them that preempts. ``by_time``: seconds
    instead of steps. Raises ``UserError`` for a kind that does not exist, or one that the trace has nothing to show of.
    """
    names = _parse(kinds)
    if len(names) == 1 and names[0] in PANELS:
        return PANELS[names[0]].figure(source, steps, by_time)
    if len(names) == 1:
        return latency(source) if names[0] == "latency" else _draw_sheet(names[0], source, steps)
    heights = {name: SHEETS_HEIGHT_IN[name] for name in names if name in SHEETS_HEIGHT_IN}
    if heights.keys() != set(names):
        history = history_of(source)
        axis = step_axis(history, steps, by_time)
        heights |= {name: PANELS[name].height_in(history, axis) for name in names if name in PANELS}
    figure = new_figure(height_in=sum(heights.values()) + 0.3)
    grid = figure.add_gridspec(len(names), 1, height_ratios=[heights[name] for name in names])
    for row, name in enumerate(names):
        if name in PANELS:
            PANELS[name].draw(figure.add_subplot(grid[row]), history, axis)
        elif name == "latency":
            cells = grid[row].subgridspec(2, 2)
            draw_latencies([figure.add_subplot(cells[index]) for index in range(4)], source)
        else:
            _draw_sheet(name, source, steps, figure.add_subplot(grid[row]))
    figure.suptitle(_describe(source), x=0.01, ha="left", fontsize=SMALL_PT, color=MUTED)
    return figure


def _parse(kinds: str | Sequence[str]) -> list[str]:
    words = kinds.split(",") if isinstance(kinds, str) else kinds
    names = list(dict.fromkeys(word.strip() for word in words))
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        wrong = f"{unknown[0]!r} is no kind of figure" if unknown else "no kind of figure is asked for"
        raise UserError(f"{wrong}: the kinds are {', '.join(KINDS)}")
    return names


def _draw_sheet(name: str, source: Source, steps: StepRange | None, ax: Axes | None = None) -> Figure:
    if name == "progress":
        return prompt_progress(source, ax=ax)
    step = None if steps is None else first_preempting_step(source, steps)
    return queue_in_hand(source, step, ax=ax) if name == "queue" else block_handover(source, step, ax=ax)


def _settle(figure: Figure) -> None:
    """Lay out once and for all, at places of a few digits: the layout's last digits differ from run to run, and may
    move a line by a pixel."""
    engine = figure.get_layout_engine()
    assert engine is not None, "new_figure gives one"
    engine.execute(figure)
    figure.set_layout_engine("none")
    for ax in figure.axes:
        left, bottom, width, height = ax.get_position(original=True).bounds
        ax.set_position((round(left, 6), round(bottom, 6), round(width, 6), round(height, 6)))


def _describe(source: Source) -> str:
    """What ran, in a line."""
    name, events = events_of(source)
    header = events[0]
    assert isinstance(header, TraceStarted), f"{name}: the replay has seen to that"
    config = header.config
    parts = [header.policy, header.model, f"on {header.backend}", f"{config['num_blocks']:,} blocks"]
    return ", ".join(part for part in parts if part)
