"""The figures of a run as tables to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanovllm.cli.console import print_line, print_table

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics
    from nanovllm.trace.metrics.latency import Latency
    from nanovllm.trace.metrics.slo import SloAttainment
    from nanovllm.trace.metrics.step_times import PhaseTimes


LATENCIES = {
    "time_to_first_token_s": "time to first token",
    "time_per_output_token_s": "time per output token",
    "inter_token_latency_s": "between two tokens",
    "end_to_end_s": "end to end",
    "queueing_s": "queueing",
}
"""The latencies of ``Metrics``, and what tables call them."""
LATENCY_FIGURES = ("mean", "p50", "p90", "p99", "max")
"""What tables tell of a latency."""


def print_metrics(metrics: Metrics, *, num_engines: int = 1) -> None:
    """Tables: how long requests took, what the run did and, if it is told, how many requests kept to limits and where
    the time of steps went. ``num_engines``: how many the figures are of."""
    from rich.table import Table

    latencies: dict[str, Latency | None] = {name: getattr(metrics, field) for field, name in LATENCIES.items()}
    table = Table("latency", *LATENCY_FIGURES, caption="of the completed requests")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, latency in latencies.items():
        table.add_row(name, *_latency_cells(latency))
    print_table(table)
    table = Table("run", "", show_header=True)
    for name, value in _facts(metrics, num_engines).items():
        table.add_row(name, value)
    print_table(table)
    if metrics.slo is not None:
        print_slo(metrics.slo)
    if metrics.step_times:
        print_step_times(metrics.step_times)


def print_slo(slo: SloAttainment) -> None:
    """Tables: how many requests kept to each limit, and to all; how much was served within them, and how steadily."""
    from rich.table import Table

    from nanovllm.trace.metrics.slo import FLUID_INDEX

    table = Table("service level objective", "limit", "requests that meet it")
    for column in table.columns[1:]:
        column.justify = "right"
    for field, limit_s in slo.limits.items():
        table.add_row(LATENCIES[field], f"{limit_s:g} s", f"{slo.attainment_by_limit[field]:.1%}")
    table.add_row("all of them", "", f"{slo.attainment:.1%} ({slo.num_met:,} of {slo.num_requests:,})")
    print_table(table)
    table = Table("within these limits", "")
    table.add_row(
        "goodput",
        f"{slo.goodput_requests_per_s:,.2f} requests/s, {slo.goodput_tokens_per_s:,.1f} output tokens/s",
    )
    if slo.fluidity is not None:
        index = slo.fluidity
        table.add_row(
            "fluidity index",
            f"{index.mean:.3f} on average; p10 {index.p10:.3f}, p1 {index.p1:.3f}, least {index.min:.3f}; "
            f"{FLUID_INDEX} or more: {index.fluid_share:.1%} of the requests",
        )
    print_table(table)


def print_step_times(step_times: dict[str, PhaseTimes]) -> None:
    """A table: what a step of each phase lasts, and what of it is the program's and the device's."""
    from rich.table import Table

    table = Table("time of a step", "", "mean", "p50", "p99", "device waits for program")
    for column in table.columns[2:]:
        column.justify = "right"
    for phase, times in step_times.items():
        waits = f"{duration(times.waited_s / times.num_steps)} a step, {times.waited_share:.1%}"
        parts = {"in all": times.duration_s, "host": times.host_s, "device": times.device_s}
        for part, latency in parts.items():
            cells = [duration(value) for value in (latency.mean, latency.p50, latency.p99)]
            is_first = part == "in all"
            table.add_row(phase if is_first else "", part, *cells, waits if is_first else "")
    print_table(table)


def print_speed(time_s: float, loop_time_s: float) -> None:
    """A line: how much faster than what it simulates a simulation was."""
    speed = time_s / loop_time_s
    told = f"{speed:.3g}" if speed < 999.5 else f"{speed:,.0f}"
    print_line(f"{duration(time_s)} of serving simulated in {duration(loop_time_s)}, {told} times as fast")


def duration(seconds: float) -> str:
    """A time to three digits in the unit that suits it: ``12.3 ms``, ``2.00 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:  # what is less is less than 1 when rounded to three digits, too
            return f"{significant(seconds / size, 3)} {unit}"
    return f"{significant(seconds * 1e6, 3)} µs"


def counts_of_ends(metrics: Metrics) -> dict[str, int]:
    """How many requests ended how; or did not end, or were never let in."""
    return {
        "completed": metrics.num_completed,
        "aborted": metrics.num_aborted,
        "failed": metrics.num_failed,
        "unfinished": metrics.num_unfinished,
        "refused": metrics.num_rejected,
    }


def counts_of_steps(metrics: Metrics) -> dict[str, int]:
    """How many steps there were of each phase."""
    return {
        "prefill": metrics.num_prefill_steps,
        "decode": metrics.num_decode_steps,
        "mixed": metrics.num_mixed_steps,
        "empty": metrics.num_empty_steps,
    }


def significant(value: float, num_digits: int) -> str:
    """A number to so many digits, zeros at its end included, so that it is told like those beside it; those before the
    point are never rounded away."""
    if value == 0 or value >= 10**num_digits - 0.5:
        return f"{value:,.0f}"
    return f"{value:#,.{num_digits}g}".rstrip(".")


def _latency_cells(latency: Latency | None) -> list[str]:
    if latency is None:
        return ["–"] * len(LATENCY_FIGURES)
    return [duration(getattr(latency, name)) for name in LATENCY_FIGURES]


def _facts(metrics: Metrics, num_engines: int) -> dict[str, str]:
    busy = _share(metrics.busy_s, num_engines * metrics.duration_s)
    return {
        "requests": _counts(counts_of_ends(metrics)),
        "duration": f"{duration(metrics.duration_s)}, {busy} of it in steps",
        "throughput": f"{metrics.output_tokens_per_s:,.1f} output tokens/s, {metrics.total_tokens_per_s:,.1f} with "
        f"prompts, {metrics.requests_per_s:,.2f} requests/s",
        "tokens": f"{metrics.prompt_tokens:,} of prompts, {metrics.output_tokens:,} generated, "
        f"{metrics.computed_tokens:,} computed",
        "steps": f"{_counts(counts_of_steps(metrics))}; {metrics.mean_tokens_per_step:,.1f} tokens each",
        "prefix cache": f"{metrics.hit_rate:.1%} of the prompt tokens found ({metrics.hit_tokens:,} of "
        f"{metrics.looked_up_tokens:,})",
        "preemptions": _preemptions(metrics),
        "KV pool": f"{metrics.mean_kv_use:.1%} in use on average, {metrics.peak_kv_use:.1%} at the most",
    }


def _preemptions(metrics: Metrics) -> str:
    if not metrics.num_preemptions:
        return "none"
    noun = "request" if metrics.num_preempted_requests == 1 else "requests"
    of_whom = f"{metrics.num_preemptions:,}, of {metrics.num_preempted_requests:,} {noun}"
    return f"{of_whom}; {metrics.recomputed_tokens:,} tokens recomputed"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "none"
