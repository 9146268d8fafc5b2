"""Prints the speed of the engine's own code on this machine, as ratios to what it is compared with."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from sim.benchmarks import control_plane
from sim.benchmarks.simulation import measure as measure_simulation


def _median(measure: Callable[[], float], repeats: int) -> float:
    measure()  # warm-up
    return statistics.median(measure() for _ in range(repeats))


def measure_all(repeats: int) -> dict[str, float]:
    """Each figure is the median over ``repeats`` runs after one that is not counted."""
    step_s = _median(lambda: control_plane.bench256().decode_step_s, repeats)
    events: list[object] = []
    traced_step_s = _median(lambda: control_plane.bench256(events.append).decode_step_s, repeats)
    tokens_per_s = _median(lambda: control_plane.bench256().decode_tokens_per_s, repeats)
    few_s, many_s = (control_plane.time_per_request(count) for count in (1_000, 100_000))
    return {
        "control_plane_decode_tokens_per_s": tokens_per_s,
        "control_plane_decode_step_us": step_s * 1e6,
        "control_plane_traced_over_silent": traced_step_s / step_s,
        "control_plane_us_per_request_of_1000": few_s * 1e6,
        "control_plane_us_per_request_of_100000": many_s * 1e6,
        **measure_simulation(repeats),
    }


def main() -> None:
    """Command line: ``--repeats N``, ``--json``."""
    parser = argparse.ArgumentParser(prog="python -m sim.benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each figure (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    figures = measure_all(arguments.repeats)
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
