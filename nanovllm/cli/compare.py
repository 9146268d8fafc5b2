"""``nanovllm compare``: a real run and its simulation, side by side."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nanovllm.cli.console import (
    print_json,
    print_line,
    print_note,
    print_table,
    refuse_overwriting,
    refuse_writing_twice,
)
from nanovllm.cli.cost_model import CostModelInput, Gpu, print_extrapolation
from nanovllm.cli.help import examples
from nanovllm.cli.metrics_table import duration
from nanovllm.cli.options import takes
from nanovllm.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from nanovllm.config import Config
    from nanovllm.trace.metrics.request_metrics import RequestMetrics
    from sim.comparison import Comparison, RealRun
    from sim.comparison.compare import LatencyPair

EXAMPLES = examples(
    "nanovllm compare run.jsonl --calibration h200.json --figure run.png",
    "nanovllm compare vllm_run --num-kvcache-blocks 36578",
)
FIGURES = ("mean", "p50", "p90", "p99")


@takes("costs", CostModelInput, panel="Cost model")
def compare(
    real: Annotated[
        Path, typer.Argument(metavar="REAL", help="The trace of a run, or the directory of a benchmarked vLLM run.")
    ],
    gpu: Gpu = None,
    model: Annotated[str | None, typer.Option(help="The model, where neither run nor cost model tells it.")] = None,
    policy: Annotated[str | None, typer.Option(help="Another policy than that of the run.")] = None,
    num_kvcache_blocks: Annotated[
        int | None, typer.Option(min=1, help="Another size of the KV pool; needed for a vLLM run.")
    ] = None,
    tensor_parallel_size: Annotated[int | None, typer.Option(min=1, help="Another number of GPUs.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Another type of numbers; a wrong one lists all.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the requests of both runs into this file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the trace of the simulation to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    costs: CostModelInput,
) -> int:
    """Simulate the workload of a real run with its answers, and say how close the simulation comes.

    From a trace of this engine, everything is taken that decides: arrivals, answers, options, the number of blocks and
    which prompts share blocks. Decisions are compared with each request coming before the step before which it came.

    A vLLM run is a directory as LLMServingSim's benchmark writes it (real_requests.jsonl, workload.jsonl.gz,
    real_meta.json); latency tables that lie there too are used, unless --gpu asks for the roofline of a card.
    """
    from sim.comparison import compare as compare_runs

    if costs == CostModelInput() and gpu is None and (real / "table_meta.yaml").is_file():
        costs = replace(costs, table=real)
    _check_outputs(trace, figure, real, costs)
    run, by_step = _read(real, num_kvcache_blocks)
    config = _change(
        run.config if policy is None else run.config.with_policy(policy),
        model=model,
        num_kvcache_blocks=num_kvcache_blocks,
        tensor_parallel_size=tensor_parallel_size,
        dtype=dtype,
    )
    is_model_known = bool(config.model)
    config, spec, cost_model = chosen = costs.choose(config)
    times = costs.source_of_times(chosen, gpu)
    with ExitStack() as resources:
        emit = None
        if trace is not None:
            from nanovllm.trace.jsonl import TraceWriter

            emit = resources.enter_context(TraceWriter(trace)).emit
        comparison, simulated = compare_runs(
            replace(run, config=config),
            cost_model,
            model=spec,
            gpu=gpu,
            by_step=None if by_step is None else replace(by_step, config=config),
            emit=emit,
        )
    if figure is not None:
        _draw(run, simulated, figure)
    if as_json:
        print_json(_to_dict(comparison))
    else:
        _print(comparison, times)
    print_extrapolation(comparison.num_steps, comparison.num_extrapolated_steps, cost_model)
    if not is_model_known:
        print_note(f"the run does not tell which model it ran: {config.model} is simulated, --model names another")
    return 0


def _change(config: Config, **changes: Any) -> Config:
    """``config`` with those options that are given."""
    return replace(config, **{name: value for name, value in changes.items() if value is not None})


def _check_outputs(trace: Path | None, figure: Path | None, real: Path, costs: CostModelInput) -> None:
    from sim.comparison.vllm_run import vllm_files

    inputs = [real, *vllm_files(real), *costs.files]
    refuse_overwriting(trace, *inputs)
    refuse_overwriting(figure, *inputs)
    refuse_writing_twice(trace, figure)
    if figure is not None:
        from viz.figures.plot import check_picture

        check_picture(figure)


def _read(path: Path, num_blocks: int | None) -> tuple[RealRun, RealRun | None]:
    """The run, and the same with arrivals by step if they come by time."""
    from sim.comparison import read_traced_run, read_vllm_run
    from sim.comparison.vllm_run import is_vllm_run

    if path.is_dir() and is_vllm_run(path):
        if num_blocks is None:
            raise ConfigError("num_kvcache_blocks", None, "a vLLM run does not tell it, but vLLM's log does: give it")
        return read_vllm_run(path, num_blocks=num_blocks), None
    if path.is_dir():
        raise TraceError(path, "is a directory, but none of a vLLM run: it has no real_requests.jsonl")
    run = read_traced_run(path)
    is_by_step = any(request.arrival_step is not None for request in run.workload)
    return run, None if is_by_step else read_traced_run(path, by_step=True)


def _draw(run: RealRun, simulated: list[RequestMetrics], path: Path) -> None:
    from viz.figures.plot import save
    from viz.figures.prediction import prediction

    save(prediction(run.requests, simulated), path)


def _to_dict(comparison: Comparison) -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(comparison)
    groups = {"latencies": comparison.latencies, "step_times": comparison.step_times}
    errors = {
        group: {name: {figure: pair.error(figure) for figure in FIGURES} for name, pair in pairs.items()}
        for group, pairs in groups.items()
    }
    return {**fields, "throughput_error": comparison.throughput_error, "errors": errors}


def _print(comparison: Comparison, times: str) -> None:
    from rich.table import Table

    columns = [heading for figure in FIGURES for heading in (figure, "error")]
    title = f"real → simulated, {comparison.num_requests - comparison.num_unpaired:,} requests"
    table = Table("", *columns, "each", title=title, caption="each: mean absolute error of the single ones")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, pair in {**comparison.latencies, **comparison.step_times}.items():
        table.add_row(name, *_cells(pair))
    print_table(table)
    rates = f"{comparison.real_tokens_per_s:,.1f} → {comparison.simulated_tokens_per_s:,.1f} output tokens/s"
    error = f" ({comparison.throughput_error:+.1%})" if comparison.real_tokens_per_s else ""
    print_line(f"throughput: {rates}{error}")
    if comparison.num_unpaired:
        print_line(f"{comparison.num_unpaired:,} requests were not completed in both runs")
    if comparison.same_decisions is not None:
        parted = comparison.first_difference
        difference = f"the decisions part: {parted} (A is the real run, B the simulated one)"
        print_line("the decisions are the same" if parted is None else difference)
    print_line(f"simulated {times}")
    print_line(f"simulated in {duration(comparison.loop_time_s)}")


def _cells(pair: LatencyPair) -> list[str]:
    cells = []
    for figure in FIGURES:
        cells.append(f"{duration(getattr(pair.real, figure))} → {duration(getattr(pair.simulated, figure))}")
        cells.append(f"{pair.error(figure):+.1%}")
    return [*cells, "–" if pair.mean_absolute_error is None else f"{pair.mean_absolute_error:.1%}"]
