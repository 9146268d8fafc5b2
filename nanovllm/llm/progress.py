"""The progress bar of a generation, with tokens per second of prefill and decode."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from nanovllm.engine.steps import StepResult

if TYPE_CHECKING:
    from rich.progress import Progress

REDRAW_INTERVAL_S = 0.1

ShowProgress = bool | Literal["always"]
"""``True``: if standard error is a terminal. ``always``: in a file or a pipe too."""


class ThroughputBar:
    """Requests done, and the mean speed of the steps of each phase so far. A context manager."""

    def __init__(self, num_requests: int, show: ShowProgress) -> None:
        self._num_requests = num_requests
        self._is_shown = show == "always" or (show and sys.stderr.isatty())
        self._num_tokens = {"prefill": 0, "decode": 0}
        self._duration_s = {"prefill": 0.0, "decode": 0.0}
        self._num_finished = 0
        self._redrawn_s = 0.0
        self._progress: Progress | None = None

    def __enter__(self) -> ThroughputBar:
        if self._is_shown:
            self._progress = _make_progress()
            self._progress.add_task("Generating", total=self._num_requests, prefill="", decode="")
            self._redraw()
            self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._redraw()
            self._progress.stop()

    def count(self, result: StepResult) -> None:
        """A step is over."""
        if self._progress is None:
            return
        phase = "decode" if result.batch.phase == "decode" else "prefill"
        self._num_tokens[phase] += result.num_tokens
        self._duration_s[phase] += result.finished_s - result.started_s
        self._num_finished += len(result.finished)
        if result.finished_s - self._redrawn_s >= REDRAW_INTERVAL_S:
            self._redrawn_s = result.finished_s
            self._redraw()

    def _redraw(self) -> None:
        assert self._progress is not None, "the bar is not shown"
        self._progress.update(
            self._progress.task_ids[0],
            completed=min(self._num_finished, self._num_requests),
            prefill=self._speed("prefill"),
            decode=self._speed("decode"),
        )

    def _speed(self, phase: str) -> str:
        duration_s = self._duration_s[phase]
        return f"{phase} {self._num_tokens[phase] / duration_s:,.0f} tok/s" if duration_s else ""


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[prefill]}"),
        TextColumn("{task.fields[decode]}"),
        console=Console(stderr=True),
    )
