"""From a trace to a picture in a file: one kind of figure, or several, one above the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanovllm.errors import FileError, UserError
from nanovllm.trace.events import TraceStarted
from nanovllm.trace.files.packed import check_writable
from viz.figures.axis import StepAxis, StepRange, step_axis
from viz.figures.block_handover import BLOCK_HANDOVER
from viz.figures.blocks import BLOCK_MAP
from viz.figures.budget import STEP_TOKENS
from viz.figures.canvas import MUTED, SMALL_PT, new_figure, told_as_it_is
from viz.figures.decision import queue_in_hand_data
from viz.figures.handover import block_handover_data
from viz.figures.historian import history_of
from viz.figures.history import History, Source, events_of, problem_of
from viz.figures.inside_step import first_preempting_step
from viz.figures.latency import draw_latencies, latency
from viz.figures.load import KV_USE, QUEUE_LENGTHS
from viz.figures.panel import Panel, Sheet
from viz.figures.progress import prompt_progress_data
from viz.figures.prompt_progress import PROMPT_PROGRESS
from viz.figures.queue_in_hand import QUEUE_IN_HAND
from viz.figures.timeline import TIMELINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

PANELS: dict[str, Panel] = {
    "timeline": TIMELINE,
    "blocks": BLOCK_MAP,
    "kv": KV_USE,
    "queues": QUEUE_LENGTHS,
    "tokens": STEP_TOKENS,
}
"""Along the steps; stacked, they share their axis."""

SHEETS: dict[str, tuple[Callable[[Source, StepRange | None], Any], Sheet[Any]]] = {
    "progress": (lambda source, steps: prompt_progress_data(source), PROMPT_PROGRESS),
    "queue": (lambda source, steps: queue_in_hand_data(source, _preempting(source, steps)), QUEUE_IN_HAND),
    "handover": (lambda source, steps: block_handover_data(source, _preempting(source, steps)), BLOCK_HANDOVER),
}
"""Of a moment: what is read from the trace, and how it is drawn."""

KINDS = (*PANELS, "latency", *SHEETS)
FORMATS = (".png", ".svg")
DPI = 150
LATENCY_HEIGHT_IN = 6.4
"""Among other pictures."""


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
    path = picture_path(output)
    return save(draw(source, kinds, steps=steps, by_time=by_time), path)


def picture_path(output: str | Path) -> Path:
    """The file for a picture. Raises ``UserError`` for a name of another format."""
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise FileError(path, f"is no name for a picture: it must end in {' or '.join(FORMATS)}")
    return path


def check_picture(output: str | Path) -> None:
    """Raise ``UserError`` if no picture could be written to this file, which stays as it is."""
    check_writable(picture_path(output))


def save(figure: Figure, output: str | Path) -> Path:
    """Write a figure, as PNG or SVG after the name of the file. The same figure makes the same file.

    Raises ``UserError`` for another format or a file that cannot be written.
    """
    path = picture_path(output)
    import matplotlib

    is_svg = path.suffix.lower() == ".svg"
    try:
        with told_as_it_is(figure), matplotlib.rc_context({"svg.hashsalt": "nanovllm"}):
            _settle(figure)
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
    if names == ["latency"]:
        return latency(source)
    if len(names) == 1:
        return _draw_alone(names[0], source, steps, by_time)
    pictures = list(_pictures(names, source, steps, by_time))
    heights = [picture.height_in for picture in pictures]
    figure = new_figure(height_in=sum(heights) + 0.3)
    grid = figure.add_gridspec(len(pictures), 1, height_ratios=heights)
    for row, picture in enumerate(pictures):
        picture.draw(figure, grid[row])
    figure.suptitle(_describe(source), x=0.01, ha="left", fontsize=SMALL_PT, color=MUTED)
    return figure


def _draw_alone(name: str, source: Source, steps: StepRange | None, by_time: bool) -> Figure:
    if name in PANELS:
        return PANELS[name].figure(source, steps, by_time)
    read, sheet = SHEETS[name]
    return sheet.figure(read(source, steps), problem_of(source))


@dataclass(frozen=True)
class _Picture:
    """One of several in a figure."""

    height_in: float
    draw: Callable[[Figure, SubplotSpec], None]


def _pictures(names: list[str], source: Source, steps: StepRange | None, by_time: bool) -> Iterator[_Picture]:
    along_steps = history_of(source) if any(name in PANELS for name in names) else None
    for name in names:
        if name == "latency":
            yield _Picture(LATENCY_HEIGHT_IN, partial(_draw_latencies, source))
        elif along_steps is not None and name in PANELS:
            yield _panel_picture(PANELS[name], along_steps, step_axis(along_steps, steps, by_time))
        else:
            yield _sheet_picture(name, source, steps)


def _draw_latencies(source: Source, figure: Figure, cell: SubplotSpec) -> None:
    cells = cell.subgridspec(2, 2)
    draw_latencies([figure.add_subplot(cells[index]) for index in range(4)], source)


def _panel_picture(panel: Panel, history: History, axis: StepAxis) -> _Picture:
    def draw(figure: Figure, cell: SubplotSpec) -> None:
        panel.draw(figure.add_subplot(cell), history, axis)

    return _Picture(panel.height_in(history, axis), draw)


def _sheet_picture(name: str, source: Source, steps: StepRange | None) -> _Picture:
    read, sheet = SHEETS[name]
    data = read(source, steps)

    def draw(figure: Figure, cell: SubplotSpec) -> None:
        sheet.draw(figure.add_subplot(cell), data, problem_of(source))

    return _Picture(sheet.height_in(data), draw)


def _preempting(source: Source, steps: StepRange | None) -> int | None:
    return None if steps is None else first_preempting_step(source, steps)


def _parse(kinds: str | Sequence[str]) -> list[str]:
    words = kinds.split(",") if isinstance(kinds, str) else kinds
    names = list(dict.fromkeys(word.strip() for word in words))
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        wrong = f"{unknown[0]!r} is no kind of figure" if unknown else "no kind of figure is asked for"
        raise UserError(f"{wrong}: the kinds are {', '.join(KINDS)}")
    return names


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
    parts = [header.policy, header.model, f"backend {header.backend}", f"{config['num_blocks']:,} blocks"]
    return ", ".join(part for part in parts if part)
