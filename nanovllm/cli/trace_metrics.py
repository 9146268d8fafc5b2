"""``nanovllm trace metrics``: the figures of one trace, or those of several side by side, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nanovllm.cli.console import EXIT_USER_ERROR, print_error, print_json, print_note, print_table
from nanovllm.cli.metrics_table import (
    LATENCIES,
    LATENCY_FIGURES,
    counts_of_ends,
    counts_of_steps,
    duration,
    print_metrics,
)
from nanovllm.errors import UserError, printable
from nanovllm.trace.metrics.slo import FLUID_INDEX

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics
    from nanovllm.trace.metrics.latency import Latency
    from nanovllm.trace.metrics.slo import Slo, SloAttainment
    from nanovllm.trace.metrics.step_times import PhaseTimes


def print_metrics_of(paths: Sequence[Path], slo: Slo, *, as_json: bool, requests: bool) -> int:
    """Print the figures of one trace as ``simulate`` does, those of several side by side, and return the exit code.

    A file that is no trace is an error line of its own, and the others are told. ``requests``: JSON has a row for each
    request, too.
    """
    measured = [(path, metrics) for path in paths if (metrics := _measure(path, slo, requests)) is not None]
    if measured and len(paths) == 1:
        [(_, metrics)] = measured
        if as_json:
            print_json(metrics.to_dict(requests=requests))
        else:
            print_metrics(metrics)
    elif measured and as_json:
        told = [{"trace": str(path), "metrics": metrics.to_dict(requests=requests)} for path, metrics in measured]
        print_json({"traces": told})
    elif measured:
        labels = short_names([path for path, _ in measured])
        print_side_by_side(labels, [metrics for _, metrics in measured])
    return 0 if len(measured) == len(paths) else EXIT_USER_ERROR


def short_names(paths: Sequence[Path]) -> list[str]:
    """The names of files, with as many of their directories as it takes to tell them apart."""
    num_parts = 1
    while len({path.parts[-num_parts:] for path in paths}) < len(set(paths)):
        num_parts += 1
    return [str(Path(*path.parts[-num_parts:])) for path in paths]


def print_side_by_side(labels: Sequence[str], runs: Sequence[Metrics]) -> None:
    """One table: a row a figure, a column a run; of two runs, how far the second differs from the first.

    ``labels``: what the runs are called.
    """
    from rich.table import Table
    from rich.text import Text

    are_two = len(runs) == 2  # of more, nothing tells which are to be compared
    caption = "latencies: of the completed requests"
    if are_two:
        caption += "; difference: (second - first) / first"
    table = Table("", "", caption=caption)
    for heading in [*labels, *(["difference"] if are_two else [])]:
        table.add_column(Text(printable(heading)), justify="right", overflow="fold")
    columns = list(map(_figures, runs))
    last_group = ""
    for group, name in dict.fromkeys(key for column in columns for key in column):
        row = [column.get((group, name), _NOTHING) for column in columns]
        if not any(figure.is_shown for figure in row):
            continue
        if group != last_group:
            table.add_section()
        cells = [figure.text for figure in row]
        table.add_row("" if group == last_group else group, name, *cells, *([_difference(*row)] if are_two else []))
        last_group = group
    print_table(table)


def _measure(path: Path, slo: Slo, keep_requests: bool) -> Metrics | None:
    """The figures of a trace; None if there are none, which is told."""
    from nanovllm.trace.jsonl import TraceStream
    from nanovllm.trace.metrics import MetricsCollector, summarize_run

    stream = TraceStream(path)
    collector = MetricsCollector(path, slo if slo.limits else None, keep_requests=keep_requests)
    try:
        collector.apply_all(stream)
    except UserError as error:
        print_error(str(error))
        return None
    if stream.problem is not None:
        print_note(stream.problem)
    return summarize_run(collector)


class _Figure(NamedTuple):
    value: float | None
    told: Callable[[float], str] = "{:,}".format
    is_always_shown: bool = True
    """If not, only where it counts something."""

    @property
    def is_shown(self) -> bool:
        return self.is_always_shown or bool(self.value)

    @property
    def text(self) -> str:
        return "–" if self.value is None else self.told(self.value)


_NOTHING = _Figure(None, is_always_shown=False)


def _figures(metrics: Metrics) -> dict[tuple[str, str], _Figure]:
    """By group and name, what ``print_metrics`` tells of a run."""
    groups = {name: _of_latency(getattr(metrics, field)) for field, name in LATENCIES.items()}
    groups |= _of_run(metrics)
    if metrics.slo is not None:
        groups |= _of_slo(metrics.slo)
    for phase, times in metrics.step_times.items():
        groups[f"{phase} step"] = _of_step_times(times)
    return {(group, name): figure for group, figures in groups.items() for name, figure in figures.items()}


def _of_latency(
    latency: Latency | None, prefix: str = "", names: Sequence[str] = LATENCY_FIGURES
) -> dict[str, _Figure]:
    return {prefix + name: _Figure(None if latency is None else getattr(latency, name), duration) for name in names}


def _of_run(metrics: Metrics) -> dict[str, dict[str, _Figure]]:
    return {
        "requests": {
            name: _Figure(count, is_always_shown=name == "completed") for name, count in counts_of_ends(metrics).items()
        },
        "duration": {
            "in all": _Figure(metrics.duration_s, duration),
            "in steps": _Figure(metrics.busy_s / metrics.duration_s if metrics.duration_s else None, "{:.0%}".format),
        },
        "throughput": {
            "output tokens/s": _Figure(metrics.output_tokens_per_s, "{:,.1f}".format),
            "with prompts": _Figure(metrics.total_tokens_per_s, "{:,.1f}".format),
            "requests/s": _Figure(metrics.requests_per_s, "{:,.2f}".format),
        },
        "tokens": {
            "of prompts": _Figure(metrics.prompt_tokens),
            "generated": _Figure(metrics.output_tokens),
            "computed": _Figure(metrics.computed_tokens),
        },
        "steps": {
            **{name: _Figure(count, is_always_shown=False) for name, count in counts_of_steps(metrics).items()},
            "tokens each": _Figure(metrics.mean_tokens_per_step, "{:,.1f}".format),
        },
        "prefix cache": {
            "prompt tokens found": _Figure(metrics.hit_rate, "{:.1%}".format),
            "their number": _Figure(metrics.hit_tokens),
            "looked up": _Figure(metrics.looked_up_tokens),
        },
        "preemptions": {
            "in all": _Figure(metrics.num_preemptions),
            "requests": _Figure(metrics.num_preempted_requests, is_always_shown=False),
            "tokens recomputed": _Figure(metrics.recomputed_tokens, is_always_shown=False),
        },
        "KV pool": {
            "in use on average": _Figure(metrics.mean_kv_use, "{:.1%}".format),
            "at the most": _Figure(metrics.peak_kv_use, "{:.1%}".format),
        },
    }


def _of_slo(slo: SloAttainment) -> dict[str, dict[str, _Figure]]:
    shares = {
        f"{LATENCIES[field]} ≤ {slo.limits[field]:g} s": share for field, share in slo.attainment_by_limit.items()
    }
    groups = {
        "requests that meet": {
            **{name: _Figure(share, "{:.1%}".format) for name, share in shares.items()},
            "all of them": _Figure(
                slo.attainment, lambda share: f"{share:.1%} ({slo.num_met:,} of {slo.num_requests:,})"
            ),
        },
        "goodput": {
            "requests/s": _Figure(slo.goodput_requests_per_s, "{:,.2f}".format),
            "output tokens/s": _Figure(slo.goodput_tokens_per_s, "{:,.1f}".format),
        },
    }
    index = slo.fluidity
    if index is not None:
        values = {"mean": index.mean, "p10": index.p10, "p1": index.p1, "least": index.min}
        groups["fluidity index"] = {name: _Figure(value, "{:.3f}".format) for name, value in values.items()}
        groups["fluidity index"][f"{FLUID_INDEX} or more"] = _Figure(index.fluid_share, "{:.1%}".format)
    return groups


def _of_step_times(times: PhaseTimes) -> dict[str, _Figure]:
    parts = {"in all": times.duration_s, "host": times.host_s, "device": times.device_s}
    figures: dict[str, _Figure] = {}
    for part, latency in parts.items():
        figures |= _of_latency(latency, f"{part} ", ("mean", "p50", "p99"))
    figures["device waits for program, mean"] = _Figure(times.waited_s / times.num_steps, duration)
    figures["device waits for program, share"] = _Figure(times.waited_share, "{:.1%}".format)
    return figures


def _difference(first: _Figure, second: _Figure) -> str:
    if first.value is None or second.value is None:
        return "–"
    if first.value == second.value:
        return "="
    return f"{second.value / first.value - 1:+,.1%}" if first.value else "–"
