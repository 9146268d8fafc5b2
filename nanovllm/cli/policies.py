"""``nanovllm policies``: one load under several scheduling policies, and how long its requests wait between tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nanovllm.cli.console import (
    EXIT_USER_ERROR,
    print_json,
    print_line,
    print_refusals,
    print_table,
    refuse_overwriting,
)
from nanovllm.cli.cost_model import CostModelInput, Gpu, print_extrapolation
from nanovllm.cli.help import examples
from nanovllm.cli.metrics_table import LATENCIES, duration
from nanovllm.cli.options import SLO_PANEL, takes
from nanovllm.cli.workload_input import WorkloadInput, print_answers_shown
from nanovllm.config import OPTIONS_OF_POLICIES, OPTIONS_OF_REAL_RUNS, POLICIES, Config
from nanovllm.errors import ConfigError
from nanovllm.own_classes import check_name, is_class_name
from nanovllm.trace.metrics.slo import SLO_OPTIONS, Slo

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics
    from nanovllm.trace.metrics.latency import Latency
    from nanovllm.trace.metrics.slo import SloAttainment
    from sim import SimulationResult
    from sim.cost_models import CostModel
    from viz.figures.token_times import TokenTimes

EXAMPLES = examples(
    "nanovllm policies load.jsonl",
    "nanovllm policies load.jsonl --slo-ttft 0.2 --slo-itl 0.05",
    "nanovllm policies AzureLLMInferenceTrace_conv.csv --policies prefill_first,mixed --figure gaps.png",
)
_WITHOUT = OPTIONS_OF_REAL_RUNS.union({"policy"}, *OPTIONS_OF_POLICIES.values())


class _Run(NamedTuple):
    policy: str
    cost_model: CostModel | None
    times: str
    """See ``CostModelInput.source_of_times``."""
    result: SimulationResult
    metrics: Metrics
    token_times: TokenTimes


@takes("config", Config, panel="Engine", without=_WITHOUT)
@takes("costs", CostModelInput, panel="Cost model")
@takes("reading", WorkloadInput, panel="Workload")
@takes("slo", Slo, panel=SLO_PANEL, names=SLO_OPTIONS)
def policies(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD", help="A workload file, or a public trace.")],
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            metavar="POLICY,...",
            help=f"Which policies: {', '.join(POLICIES)}, or module:Class for one's own.",
        ),
    ] = "prefill_first,mixed",
    gpu: Gpu = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the times between tokens into this file, .png or .svg.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="A:B", help="With --figure: show seconds A to B of each run; else those around the longest wait."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    config: Config,
    costs: CostModelInput,
    reading: WorkloadInput,
    slo: Slo,
) -> int:
    """Simulate a workload under several scheduling policies, and set side by side what requests see of them.

    The options of single policies stay at their defaults. The figure shows how long requests wait between two of their
    tokens, and a burst in each run, a line a request.

    If limits are given, a second table tells how many requests kept to them, and the figure tells it, too; a request
    is drawn as stalled where it waits for --slo-itl or longer.
    """
    names = _parse_policies(policies)
    seconds = None if window is None else _parse_window(window)
    if window is not None and figure is None:
        raise ConfigError("window", window, "only together with figure")
    _check_figure(figure, len(names), workload, costs)
    if any(map(is_class_name, names)) and reading.shows_answers(workload):
        print_answers_shown()
    runs = [_run(workload, config.with_policy(name), gpu, costs, reading, slo) for name in names]
    if as_json:
        print_json({"policies": list(map(_to_dict, runs))})
    else:
        _print(runs)
        print_line(runs[0].times)
        print_line(f"simulated in {duration(sum(run.result.loop_time_s for run in runs))}")
    if figure is not None:  # last: where there is nothing to draw, there are figures to read
        _draw(runs, seconds, slo, figure)
    num_steps = sum(run.result.num_steps for run in runs)
    print_extrapolation(num_steps, sum(run.result.num_extrapolated_steps for run in runs), runs[0].cost_model)
    rejected = runs[0].result.rejected
    print_refusals(rejected)
    return EXIT_USER_ERROR if rejected else 0


def _parse_policies(text: str) -> list[str]:
    names = [word.strip() for word in text.split(",")]
    for name in names:
        check_name("policies", name, POLICIES)
        if names.count(name) > 1:
            raise ConfigError("policies", text, "each once")
    return names


def _parse_window(text: str) -> tuple[float, float]:
    try:
        start_s, end_s = map(float, text.split(":"))
    except ValueError:
        start_s = end_s = 0.0
    if not 0 <= start_s < end_s < float("inf"):
        raise ConfigError("window", text, "the first and the last second, such as 12:30.5")
    return start_s, end_s


def _check_figure(figure: Path | None, num_policies: int, workload: Path, costs: CostModelInput) -> None:
    refuse_overwriting(figure, workload, *costs.files)
    if figure is not None:
        from viz.figures.plot import check_picture
        from viz.palette import SERIES

        check_picture(figure)
        if num_policies > len(SERIES):
            raise ConfigError("figure", str(figure), f"for at most {len(SERIES)} policies, here are {num_policies}")


def _run(
    workload: Path, config: Config, gpu: str | None, costs: CostModelInput, reading: WorkloadInput, slo: Slo
) -> _Run:
    from nanovllm.trace.metrics import summarize_run
    from nanovllm.trace.metrics.collector import MetricsCollector
    from sim import simulate
    from viz.figures.token_times import TokenTimes

    collector = MetricsCollector(slo=slo if slo.limits else None, keep_requests=False)
    token_times = TokenTimes()
    chosen = costs.choose(config)
    result = simulate(
        chosen.config,
        reading.read(workload),
        gpu=gpu,
        model=chosen.model,
        cost_model=chosen.cost_model,
        record=False,
        listeners=[collector.apply_all, token_times.apply_all],
    )
    times = costs.source_of_times(chosen, gpu)
    return _Run(config.policy, chosen.cost_model, times, result, summarize_run(collector), token_times)


def _draw(runs: list[_Run], window_s: tuple[float, float] | None, slo: Slo, path: Path) -> None:
    from viz.figures.decode_gaps import STALL_S, decode_gaps
    from viz.figures.plot import save

    drawn = decode_gaps(
        [run.token_times for run in runs],
        attainments=[attained.attainment for run in runs if (attained := run.metrics.slo) is not None],
        window_s=window_s,
        stall_s=STALL_S if slo.inter_token_latency_s is None else slo.inter_token_latency_s,
    )
    save(drawn, path)


def _to_dict(run: _Run) -> dict[str, object]:
    extrapolated = {"num_extrapolated_steps": run.result.num_extrapolated_steps}
    return {"policy": run.policy, **extrapolated, "metrics": run.metrics.to_dict()}


def _print(runs: list[_Run]) -> None:
    from rich.table import Table

    columns = ("first token p50", "p99", "between two tokens p50", "p99", "longest", "end to end p50", "p99")
    table = Table("policy", "completed", "preemptions", *columns)
    for column in table.columns[1:]:
        column.justify = "right"
    for run in runs:
        metrics = run.metrics
        table.add_row(
            run.policy,
            f"{metrics.num_completed:,}",
            f"{metrics.num_preemptions:,}",
            *_cells(metrics.time_to_first_token_s, "p50", "p99"),
            *_cells(metrics.inter_token_latency_s, "p50", "p99", "max"),
            *_cells(metrics.end_to_end_s, "p50", "p99"),
        )
    print_table(table)
    attained = {run.policy: run.metrics.slo for run in runs if run.metrics.slo is not None}
    if attained:
        _print_within_limits(attained)


def _cells(latency: Latency | None, *names: str) -> list[str]:
    return ["–" if latency is None else duration(getattr(latency, name)) for name in names]


def _print_within_limits(attained: dict[str, SloAttainment]) -> None:
    """A table: by policy, the share of the requests that kept to each limit and to all, and the goodput."""
    from rich.table import Table

    limits = next(iter(attained.values())).limits
    headings = [f"{LATENCIES[field]} ≤ {limit_s:g} s" for field, limit_s in limits.items()]
    table = Table("requests that meet", *headings, "all of them", "goodput: requests/s", "output tokens/s")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for policy, slo in attained.items():
        table.add_row(
            policy,
            *(f"{slo.attainment_by_limit[field]:.1%}" for field in limits),
            f"{slo.attainment:.1%}",
            f"{slo.goodput_requests_per_s:,.2f}",
            f"{slo.goodput_tokens_per_s:,.1f}",
        )
    print_table(table)
