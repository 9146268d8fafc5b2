"""``nanovllm simulate --replicas N``: several engines behind a router."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanovllm.checks import check_whole_number
from nanovllm.cli.console import (
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    print_json,
    print_line,
    print_note,
    print_refusals,
    print_table,
    printed_at_the_end,
)
from nanovllm.cli.cost_model import print_extrapolation
from nanovllm.cli.metrics_table import duration, print_metrics, print_speed
from nanovllm.own_classes import check_name

if TYPE_CHECKING:
    from nanovllm.config import Config
    from nanovllm.trace.metrics import Metrics
    from nanovllm.trace.metrics.latency import Latency
    from nanovllm.trace.metrics.slo import Slo
    from nanovllm.trace.recorder import EmitAll
    from sim.cluster import ClusterResult
    from sim.workload import WorkloadRequest

ROUTERS = ("round_robin", "least_loaded", "prefix_aware")
MAX_REPLICAS = 1024


@dataclass(frozen=True, kw_only=True)
class ClusterInput:
    """How many engines there are, and who gets which request. Raises ``ConfigError``."""

    replicas: int = 1
    """Run so many engines, each on modelled GPUs of its own, behind a router."""
    router: str = "round_robin"
    """Which replica gets a request. One of ``ROUTERS``, or ``module:Class``, one's own."""

    def __post_init__(self) -> None:
        check_whole_number("replicas", self.replicas, 1, MAX_REPLICAS)
        check_name("router", self.router, ROUTERS)

    @property
    def may_rank_by_max_tokens(self) -> bool:
        """Whether the router looks at how long answers may become, or is one's own, which may."""
        return self.replicas > 1 and self.router != "round_robin"

    def trace_paths(self, path: Path | None) -> list[Path]:
        """The file for the trace of each replica: ``run.jsonl`` itself for one, else ``run.replica-0.jsonl`` ..."""
        if path is None:
            return []
        if self.replicas == 1:
            return [path]
        compression = path.suffix if path.suffix == ".gz" else ""
        bare = path.with_name(path.name.removesuffix(compression))
        width = len(str(self.replicas - 1))
        names = (f"{bare.stem}.replica-{index:0{width}}{bare.suffix}" for index in range(self.replicas))
        return [path.with_name(name + compression) for name in names]


def simulate_replicas(
    cluster: ClusterInput,
    config: Config,
    requests: Iterable[WorkloadRequest],
    *,
    trace: Path | None,
    slo: Slo,
    as_json: bool,
    times: str,
    **options: Any,
) -> int:
    """Run several replicas and print their figures; ``times`` tells where theirs come from, ``options`` are further
    ones of ``simulate_cluster``. Returns the exit code."""
    from nanovllm.trace.jsonl import TraceWriter
    from nanovllm.trace.metrics import summarize_run
    from nanovllm.trace.metrics.collector import MetricsCollector
    from nanovllm.trace.metrics.merged import merge_collectors
    from sim.cluster import simulate_cluster

    promised = slo if slo.limits else None
    collectors = [MetricsCollector(slo=promised, keep_requests=False) for _ in range(cluster.replicas)]
    result = None

    def print_figures() -> None:
        parts, whole = list(map(summarize_run, collectors)), merge_collectors(collectors)
        if as_json:
            print_json(_to_dict(cluster, result, parts, whole))
        else:
            _print(cluster, result, parts, whole, times)

    with ExitStack() as opening:
        writers = [opening.enter_context(TraceWriter(path)) for path in cluster.trace_paths(trace)]
        all_written = opening.pop_all()
    with printed_at_the_end(print_figures), all_written:
        listeners: list[list[EmitAll]] = [[collector.apply_all] for collector in collectors]
        for each, writer in zip(listeners, writers, strict=False):
            each.append(writer.emit_all)
        try:
            result = simulate_cluster(
                config,
                requests,
                num_replicas=cluster.replicas,
                router=cluster.router,
                record=False,
                listeners=listeners,
                **options,
            )
        except KeyboardInterrupt:
            print_note("interrupted: the figures are those of the run up to here")
    if result is None:
        return EXIT_INTERRUPTED
    print_extrapolation(result.num_steps, result.num_extrapolated_steps, options.get("cost_model"))
    print_refusals(result.rejected)
    return EXIT_USER_ERROR if result.rejected else 0


def _to_dict(
    cluster: ClusterInput, result: ClusterResult | None, parts: list[Metrics], whole: Metrics
) -> dict[str, Any]:
    run: dict[str, Any] = {}
    if result is not None:
        run = {
            "time_s": result.time_s,
            "loop_time_s": result.loop_time_s,
            "facts": result.replicas[0].facts,
            "num_extrapolated_steps": result.num_extrapolated_steps,
            "expected_hit_tokens": result.expected_hit_tokens,
            "load_imbalance": result.load_imbalance,
            "rejected": [{"id": request, "reason": error.reason} for request, error in result.rejected],
        }
    return {
        "complete": result is not None,
        "router": cluster.router,
        **run,
        "metrics": whole.to_dict(),
        "replicas": [part.to_dict() for part in parts],
    }


def _print(
    cluster: ClusterInput, result: ClusterResult | None, parts: list[Metrics], whole: Metrics, times: str
) -> None:
    print_metrics(whole, num_engines=cluster.replicas)
    _print_replicas(cluster, parts, whole)
    print_line(times)
    if result is None:
        return
    print_line(f"at an arrival, the fullest replica had {result.load_imbalance:.2f} times the average to do")
    if result.expected_hit_tokens and whole.looked_up_tokens:
        expected = f"{result.expected_hit_tokens / whole.looked_up_tokens:.1%}"
        print_line(f"the router expected {expected} of the prompt tokens to be found, {whole.hit_rate:.1%} were")
    print_speed(result.time_s, result.loop_time_s)


def _print_replicas(cluster: ClusterInput, parts: list[Metrics], whole: Metrics) -> None:
    from rich.table import Table

    columns = ("requests", "found", "busy", "output tokens/s", "first token p50", "p99", "per output token p50", "p99")
    caption = "found: share of the prompt tokens in the prefix cache; busy: share of the time in steps"
    title = f"{cluster.replicas} replicas, {cluster.router}"
    table = Table("replica", *columns, title=title, caption=caption)
    for column in table.columns[1:]:
        column.justify = "right"
    for index, part in enumerate(parts):
        table.add_row(str(index), *_cells(part, whole.duration_s, 1))
    table.add_section()
    table.add_row("all", *_cells(whole, whole.duration_s, len(parts)))
    print_table(table)


def _cells(metrics: Metrics, duration_s: float, num_engines: int) -> list[str]:
    latencies = (metrics.time_to_first_token_s, metrics.time_per_output_token_s)
    return [
        f"{metrics.num_requests:,}",
        f"{metrics.hit_rate:.1%}",
        f"{metrics.busy_s / duration_s / num_engines:.0%}" if duration_s else "–",
        f"{metrics.output_tokens / duration_s:,.1f}" if duration_s else "–",
        *(cell for latency in latencies for cell in _latency_cells(latency)),
    ]


def _latency_cells(latency: Latency | None) -> list[str]:
    return ["–", "–"] if latency is None else [duration(latency.p50), duration(latency.p99)]
