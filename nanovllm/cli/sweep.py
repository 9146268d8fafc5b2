"""``nanovllm sweep``: many simulations, every combination of some settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    print_error,
    print_json,
    print_note,
    refuse_overwriting,
    refuse_writing_twice,
)
from nanovllm.cli.help import examples
from nanovllm.cli.sweep_progress import SweepProgress
from nanovllm.cli.sweep_views import LATENCY, SweepFigures, check_sort, print_rows
from nanovllm.errors import ConfigError, UserError

if TYPE_CHECKING:
    from sim.sweeps import Sweep, SweepResult

EXAMPLES = examples(
    "nanovllm sweep --vary policy=prefill_first,mixed --vary rate=2,4,8 --set gpu=l4 --store policies",
    "nanovllm sweep --vary num_kvcache_blocks=400,600,800 --set kvcache_block_size=16 --cliff cliff.png",
    "nanovllm sweep --set gpu=l4 --set find_rate=0.9 --set slo_ttft=0.5 --set slo_tpot=0.05 --set rate_tolerance=0.1",
)
MAX_ERROR_LINES = 5


def sweep(
    file: Annotated[
        Path | None, typer.Argument(metavar="[SWEEP]", help="A YAML file with settings and what varies.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,VALUE",
            help="Try these values of a setting, each with each of the others'; NAME+NAME=VALUE+VALUE,VALUE+VALUE: of "
            "several together. Where values have commas, semicolons part them.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of all simulations; an unknown name lists all."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Keep the rows in this directory; what is there is not computed again, and tells the sweep."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Simulations at a time; one a processor without it.")] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Compute on this Ray cluster; local: on one made here.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option(help="Compute cells that failed once more.")] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Print and draw only cells that have this value of what varies; several of one name: any of them.",
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Sort the table by a column; -COLUMN: the largest first.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 40,
    pareto: Annotated[
        Path | None, typer.Option(help="Draw throughput against p99 time to first token into this file.")
    ] = None,
    cliff: Annotated[Path | None, typer.Option(help="Draw what the size of the KV pool does into this file.")] = None,
    heatmap: Annotated[Path | None, typer.Option(help="Draw a column over two settings that vary.")] = None,
    routers: Annotated[
        Path | None, typer.Option(help="Draw what routers make of more and more replicas into this file.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="COLUMN", help=f"With --heatmap: draw this column; without it, {LATENCY}.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a row a line.")] = False,
) -> int:
    """Simulate every combination of some settings, all processors busy.

    Settings are the options of `simulate` and `workload make` by their names with underscores (workload is the file).
    With find_rate=SHARE, each cell is a search for the highest rate at which so large a share of the requests meets
    slo_ttft, slo_tpot, slo_itl and slo_e2e, for as long as requests may come; load_duration_s sets for how long.

    A cell that fails is a row that says why, and the exit code is 1. A sweep with a store can be interrupted or killed
    at any moment: the same command goes on with what is missing, and one with more values computes what is new. With a
    store alone, it is that store's sweep.
    """
    from sim.sweeps import run_sweep
    from sim.sweeps.part import part_of, part_of_result, read_conditions

    figures = SweepFigures(pareto=pareto, cliff=cliff, heatmap=heatmap, routers=routers, value=value)
    _check_files(figures, file)
    chosen = _choose_sweep(file, vary or [], set_ or [], store)
    conditions = read_conditions(chosen, [_name_and_value("where", text) for text in where or []])
    figures.check(part_of(chosen, conditions))
    check_sort(chosen, sort)
    with SweepProgress() as progress:
        try:
            result = run_sweep(
                chosen,
                store=store,
                num_jobs=jobs,
                ray=ray,
                retry_failed=retry_failed,
                on_start=progress.start,
                on_row=progress.take,
            )
        except KeyboardInterrupt:
            progress.stop()
            kept = "nothing is kept without --store" if store is None else "the same command goes on from here"
            print_note(f"interrupted after {progress.num_done:,} of {progress.num_cells:,} cells: {kept}")
            return EXIT_INTERRUPTED
    shown = part_of_result(result, conditions)
    _print(shown, sort, rows, as_json)
    figures.draw(shown)
    return EXIT_FAILED if shown.failed else 0


def _check_files(figures: SweepFigures, file: Path | None) -> None:
    paths = figures.paths
    for index, path in enumerate(paths):
        refuse_overwriting(path, file)
        for other in paths[:index]:
            refuse_writing_twice(other, path)


def _choose_sweep(file: Path | None, vary: list[str], settings: list[str], store: Path | None) -> Sweep:
    from sim.sweeps import Sweep, read_sweep, read_sweep_file

    fixed = _by_name("set", settings)
    axes = {name: _values(text) for name, text in _by_name("vary", vary).items()}
    if file is not None:
        return read_sweep_file(file, settings=fixed, vary=axes)
    if fixed or axes:
        return Sweep(settings=fixed, vary=axes)
    if store is None or not store.is_dir():
        raise UserError("nothing to simulate: a sweep file, --vary, --set or the --store of an earlier sweep is needed")
    return read_sweep(store)


def _by_name(option: str, texts: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts:
        name, value = _name_and_value(option, text)
        if name in values:
            raise ConfigError(option, text, f"{name} is given twice")
        values[name] = value
    return values


def _name_and_value(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(option, text, "a name, =, and a value")
    return name, value


def _values(text: str) -> list[str]:
    return [value.strip() for value in text.split(";" if ";" in text else ",")]


def _print(result: SweepResult, sort: str | None, limit: int, as_json: bool) -> None:
    if as_json:
        for row in result.rows:
            print_json(row)
    else:
        print_rows(result, sort, limit)
    for row in result.failed[:MAX_ERROR_LINES]:
        told = ", ".join(f"{name}={row[name]}" for name in result.sweep.varied)
        print_error(f"{told}: {row['error']}" if told else row["error"])
    if len(result.failed) > MAX_ERROR_LINES:
        print_error(f"{len(result.failed) - MAX_ERROR_LINES:,} more cells failed, see the column error")
