"""Prints how fast the engine's own code is on this machine."""

from __future__ import annotations

import argparse
import json
import platform
from operator import attrgetter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nanovllm.trace.recorder import Recorder
from sim.benchmarks import control_plane, large_runs
from sim.benchmarks.control_plane import ControlPlaneResult
from sim.benchmarks.simulation import measure as measure_simulation


def _median_run(repeats: int, *, traced: bool) -> ControlPlaneResult:
    """Of ``repeats`` runs after one that is not counted, the one in the middle."""
    runs = [control_plane.bench256(Recorder().emit if traced else None) for _ in range(repeats + 1)][1:]
    return sorted(runs, key=attrgetter("decode_s"))[repeats // 2]


def measure_all(repeats: int) -> dict[str, float]:
    """Each figure is the median over ``repeats`` runs after one that is not counted; those of many requests are of
    one run each."""
    silent, traced = _median_run(repeats, traced=False), _median_run(repeats, traced=True)
    few_s, many_s = (control_plane.time_per_request(count) for count in (1_000, 100_000))
    return {
        "control_plane_decode_tokens_per_s": silent.decode_tokens_per_s,
        "control_plane_decode_step_us": silent.decode_step_s * 1e6,
        "control_plane_traced_over_silent": traced.decode_s / silent.decode_s,
        "control_plane_us_per_request_of_1000": few_s * 1e6,
        "control_plane_us_per_request_of_100000": many_s * 1e6,
        **measure_simulation(repeats),
    }


def main() -> None:
    """Command line: ``--repeats N``, ``--json``, ``--azure FILE``, ``--many N``."""
    parser = argparse.ArgumentParser(prog="python -m sim.benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each figure (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--azure", type=Path, help="also simulate this Azure trace, all of it")
    parser.add_argument("--many", type=int, default=0, help="also simulate so many short requests, a million say")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error("--repeats must be at least 1")
    figures = {**measure_all(arguments.repeats), **large_runs.measure("poisson")}
    if arguments.azure is not None:
        figures |= large_runs.measure("azure", arguments.azure)
    if arguments.many:
        figures |= large_runs.measure("many", num_requests=arguments.many)
    console = Console()
    if arguments.json:
        console.print_json(json.dumps({"python": platform.python_version(), **figures}))
        return
    table = Table("figure", "measured", title=f"Python {platform.python_version()}, {platform.machine()}")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
