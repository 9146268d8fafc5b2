"""The web replay in a notebook, or a figure where widgets do not run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent, TraceStarted
from nanovllm.trace.files.completeness import why_unfinished
from nanovllm.trace.jsonl import Trace
from viz.figures import draw
from viz.notebook.picture import Picture

if TYPE_CHECKING:
    from viz.notebook.widget import ReplayWidget


def replay(source: Trace | Sequence[AnyEvent], words: str, *, name: str = "run") -> ReplayWidget | Picture:
    """A run to step through, forwards and backwards: the value of a cell.

    Where the package anywidget is missing, or the page cannot draw widgets (a stored notebook on the web, say), a
    picture of the requests' timeline stands in. ``words`` say what that shows; ``name`` stands above the replay.
    Raises ``TraceError`` for events that are none, or contradict each other.
    """
    trace = source if isinstance(source, Trace) else _as_trace(source, name)
    picture = Picture(draw(trace, "timeline"), words)
    if find_spec("anywidget") is None:
        return picture
    from viz.notebook.widget import ReplayWidget

    return ReplayWidget(trace, picture)


def _as_trace(events: Sequence[AnyEvent], name: str) -> Trace:
    if not events or not isinstance(events[0], TraceStarted):
        raise TraceError(name, "is no trace: its first event is no trace_started")
    problem = why_unfinished(events)
    return Trace(path=name, header=events[0], events=list(events), complete=problem is None, problem=problem)
