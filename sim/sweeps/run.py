"""A sweep, from its cells to the table of its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.checks import check_whole_number
from nanovllm.engine.policies import find_scheduler
from nanovllm.own_classes import is_class_name
from sim.cluster.simulation import find_router
from sim.processors import num_processors
from sim.sweeps.executors import LOCAL_CLUSTER, in_processes, in_this_process, on_ray
from sim.sweeps.row import FAILED, WALL, Row
from sim.sweeps.store import Store, open_store
from sim.sweeps.sweep import Cell, Sweep
from sim.sweeps.table import to_table

if TYPE_CHECKING:
    import pyarrow

OnRow = Callable[[Row], None]


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep came to."""

    sweep: Sweep
    rows: list[Row]
    """In the order of the sweep's cells."""
    reused: Collection[str]
    """The keys of cells whose rows were in the store."""

    @property
    def num_reused(self) -> int:
        """How many of the rows were in the store."""
        return sum(row["cell"] in self.reused for row in self.rows)

    @property
    def failed(self) -> list[Row]:
        """The rows of cells that failed."""
        return [row for row in self.rows if row["status"] == FAILED]

    def table(self) -> pyarrow.Table:
        """The rows as an arrow table; ``.to_pandas()`` makes a data frame of it."""
        return to_table(self.rows, self.sweep.names)


def run_sweep(
    sweep: Sweep,
    *,
    store: str | Path | None = None,
    num_jobs: int | None = None,
    ray: str | None = None,
    retry_failed: bool = False,
    on_start: Callable[[int, int], None] | None = None,
    on_row: OnRow | None = None,
) -> SweepResult:
    """Compute the cells of a sweep, as many at a time as there are processors, or ``num_jobs``.

    ``store``: a directory that rows are kept in as they come. What it holds is not computed again, so a sweep that was
    killed goes on where it was, and one with more values than the store's computes the cells that are new;
    ``retry_failed`` computes the cells that failed once more. ``ray``: the address of a
    Ray cluster to compute on, or ``LOCAL_CLUSTER``. ``on_start`` is told how many cells there are, and how many rows of
    them the store has; ``on_row`` each new row. A row is a function of its cell, wherever it is computed, but for
    ``wall_s``.

    Raises ``ConfigError`` for a policy or router of one's own that cannot be imported, before anything is computed;
    ``FileError`` for a store of another sweep, or one that is in use; ``WorkerError`` if processes are killed or
    the cluster is lost. Rows that were computed are in the store then, as after Ctrl-C.
    """
    if num_jobs is not None:
        check_whole_number("jobs", num_jobs, 1)
    cells = sweep.cells()
    _refuse_missing_classes(cells)
    with ExitStack() as resources:
        kept = None if store is None else resources.enter_context(open_store(store, sweep))
        rows = {} if kept is None else _reusable(kept, cells, retry_failed)
        reused = frozenset(rows)
        if on_start is not None:
            on_start(len(cells), len(reused))
        missing = [cell for cell in cells if cell.key not in rows]
        for row in resources.enter_context(closing(_compute(missing, num_jobs, ray))):
            if kept is not None:
                kept.keep(row)
            rows[row["cell"]] = row
            if on_row is not None:
                on_row(row)
        in_order = [rows[cell.key] for cell in cells]
        if kept is not None:
            kept.finish(in_order)
    return SweepResult(sweep=sweep, rows=in_order, reused=reused)


def _refuse_missing_classes(cells: Sequence[Cell]) -> None:
    for name, find in (("policy", find_scheduler), ("router", find_router)):
        for value in dict.fromkeys(cell.settings.get(name) for cell in cells):
            if isinstance(value, str) and is_class_name(value):
                find(value)


def _reusable(store: Store, cells: Sequence[Cell], retry_failed: bool) -> dict[str, Row]:
    rows = store.rows({cell.key for cell in cells})
    return {key: row for key, row in rows.items() if not (retry_failed and row["status"] == FAILED)}


def _compute(cells: Sequence[Cell], num_jobs: int | None, ray: str | None) -> Generator[Row]:
    if not cells:
        return in_this_process(cells)
    if ray is not None:
        return on_ray(cells, None if ray == LOCAL_CLUSTER else ray, num_jobs)
    num_jobs = min(len(cells), num_jobs or num_processors())
    return in_this_process(cells) if num_jobs == 1 else in_processes(cells, num_jobs)


def equal_rows(some: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether two computations of the same cells came to the same, whatever time they took."""
    return [{**row, WALL: None} for row in some] == [{**row, WALL: None} for row in others]
