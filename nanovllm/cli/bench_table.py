"""What a benchmark found, as tables to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nanovllm.cli.console import print_line, print_table
from nanovllm.cli.metrics_table import duration

if TYPE_CHECKING:
    from nanovllm.cli.bench_run import BenchResult


def print_results(results: list[BenchResult], facts: Mapping[str, Any], pool: Mapping[str, Any]) -> None:
    """How fast each run was, where the time of its steps went in the last one of each load, and what it ran on."""
    from rich.table import Table

    table = Table("load")
    for heading in ("run", "tokens/s", "bound", "of bound", "time"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.load,
            f"{result.repetition}{' traced' if result.is_traced else ''}",
            f"{result.tokens_per_s:,.0f}",
            "–" if result.bound_tokens_per_s is None else f"{result.bound_tokens_per_s:,.0f}",
            "–" if result.share_of_bound is None else f"{result.share_of_bound:.1%}",
            duration(result.wall_s),
        )
    print_table(table)
    _print_step_times({result.load: result for result in results if not result.is_traced})
    print_line(f"KV pool: {pool['num_kv_blocks']:,} blocks, {pool['kv_pool_gib']:,.2f} GiB")
    print_line(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))


def _print_step_times(last_runs: Mapping[str, BenchResult]) -> None:
    from rich.table import Table

    table = Table("mean time of a step", "phase", caption="wait: of the time, what the device waits for the host")
    for heading in ("steps", "in all", "device", "host", "wait", "of time"):
        table.add_column(heading, justify="right")
    for load, result in last_runs.items():
        for phase, times in result.steps.items():
            means = (times.duration_s.mean, times.device_s.mean, times.host_s.mean, times.waited_s / times.num_steps)
            table.add_row(load, phase, f"{times.num_steps:,}", *map(duration, means), f"{times.waited_share:.1%}")
    print_table(table)


def print_tracing_costs(costs: Mapping[str, float]) -> None:
    """``costs``: load -> what tracing takes of its throughput, 0 to 1."""
    for load, cost in costs.items():
        print_line(f"tracing costs {cost:.1%} of the tokens/s of {load}")
