"""``--live``: a run is shown while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import print_note

if TYPE_CHECKING:
    from nanovllm.trace.events import Emit
    from viz.live import LiveView

Live = Annotated[
    bool, typer.Option("--live", help="Show queues, KV blocks and decisions while it runs; in a pipe, a line a step.")
]


def make_view(live: bool, as_json: bool = False) -> LiveView | None:
    """A view on standard output; on standard error, if the results are for programs. None if it is not wanted."""
    if not live:
        return None
    from viz.live import LiveView

    return LiveView(sys.stderr if as_json else sys.stdout)


@contextmanager
def showing(view: LiveView | None) -> Iterator[None]:
    """Around a run: show it, and say afterwards if something became of the view."""
    if view is None:
        yield
        return
    try:
        with view:
            yield
    finally:
        if view.problem is not None:
            print_note(view.problem)


def listeners(trace: Path | None, view: LiveView | None, resources: ExitStack) -> list[Emit]:
    """What shall hear of the events: a writer of ``trace``, which ``resources`` close, and the view."""
    emits: list[Emit] = []
    if trace is not None:
        from nanovllm.trace.jsonl import TraceWriter

        emits.append(resources.enter_context(TraceWriter(trace)).emit)
    return emits if view is None else [*emits, view.emit]
