"""How far a sweep is: a bar on the terminal's standard error, nothing where there is none."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class SweepProgress:
    """A bar with the cells that are done, those that failed, and the time that is left."""

    def __init__(self) -> None:
        self.num_cells = 0
        self.num_done = 0
        self._num_failed = 0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, num_cells: int, num_stored: int) -> None:
        """Show the bar. ``num_stored`` cells need not be computed."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.num_cells, self.num_done = num_cells, num_stored
        if not sys.stderr.isatty():
            return
        stored = f", {num_stored:,} from the store" if num_stored else ""
        self._progress = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}" + stored),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("cells", total=num_cells, completed=num_stored, failed="")
        self._progress.start()

    def take(self, row: dict[str, Any]) -> None:
        """Count a row that was computed."""
        self.num_done += 1
        self._num_failed += row["status"] == "failed"
        if self._progress is not None and self._task is not None:
            failed = f"{self._num_failed:,} failed" if self._num_failed else ""
            self._progress.update(self._task, advance=1, failed=failed)

    def stop(self) -> None:
        """Take the bar down, if there is one."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
