"""``nanovllm simulate``: the engine on a modelled GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nanovllm.cli.cluster import ClusterInput, simulate_replicas
from nanovllm.cli.console import (
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    print_json,
    print_line,
    print_note,
    print_refusals,
    printed_at_the_end,
    refuse_overwriting,
    show_progress,
)
from nanovllm.cli.cost_model import CostModelInput, Gpu, print_extrapolation
from nanovllm.cli.help import examples
from nanovllm.cli.live import Live, make_view, showing
from nanovllm.cli.metrics_table import print_metrics, print_speed
from nanovllm.cli.options import SLO_PANEL, takes
from nanovllm.cli.workload_input import WorkloadInput, print_answers_shown
from nanovllm.config import OPTIONS_OF_REAL_RUNS, Config
from nanovllm.errors import ConfigError
from nanovllm.own_classes import is_class_name
from nanovllm.trace.metrics.slo import SLO_OPTIONS, Slo

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics
    from sim import SimulationResult
    from sim.outputs import RecordedOutputs

EXAMPLES = examples(
    "nanovllm simulate load.jsonl --gpu h100 --model qwen3-8b --trace trace.jsonl",
    "nanovllm simulate load.jsonl --live",
    "nanovllm simulate load.jsonl --slo-ttft 0.2 --slo-tpot 0.05",
    "nanovllm simulate load.jsonl --policy mixed --calibration h200.json",
    "nanovllm simulate mooncake.jsonl --replicas 4 --router prefix_aware",
    "nanovllm simulate AzureLLMInferenceTrace_conv.csv --limit 500 --rate-scale 2",
)


@takes("config", Config, panel="Engine", without=OPTIONS_OF_REAL_RUNS)
@takes("costs", CostModelInput, panel="Cost model")
@takes("reading", WorkloadInput, panel="Workload")
@takes("slo", Slo, panel=SLO_PANEL, names=SLO_OPTIONS)
@takes("cluster", ClusterInput, panel="Replicas")
def simulate(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD", help="A workload file, or a public trace.")],
    gpu: Gpu = None,
    outputs: Annotated[
        Path | None, typer.Option(help="Take the answers from this trace of a run of the same workload.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="For prompts that are texts: the model whose tokenizer (and chat template) to use."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the trace to this file.")] = None,
    live: Live = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    config: Config,
    costs: CostModelInput,
    reading: WorkloadInput,
    slo: Slo,
    cluster: ClusterInput,
) -> int:
    """Run a workload on a modelled GPU: the same scheduler, a clock that jumps.

    --model takes a name that `nanovllm models` lists, or a directory with a config.json; without it, it is the model
    that was measured, or else qwen3-0.6b. Requests that can never run
    get an error line each, the others run; the exit code is 2 then. Ctrl-C ends the run: figures and trace tell of
    what came before.

    With --replicas, each writes a trace of its own: --trace run.jsonl makes run.replica-0.jsonl and so on.
    """
    from nanovllm.trace.second_process import observe
    from sim import simulate as run_simulation

    if cluster.replicas > 1:
        _refuse_for_replicas(live=live, outputs=outputs)
    for path in cluster.trace_paths(trace):
        refuse_overwriting(path, workload, outputs, *costs.files)
    encode = None if tokenizer is None else _load_encoder(tokenizer)
    requests = reading.read(workload, allow_text=encode is not None)
    recorded = None if outputs is None else _read_outputs(outputs)
    config, spec, cost_model = chosen = costs.choose(config)
    times = costs.source_of_times(chosen, gpu)
    may_rank = is_class_name(config.policy) or cluster.may_rank_by_max_tokens
    if may_rank and reading.shows_answers(workload):
        print_answers_shown()
    if cluster.replicas > 1:
        options = {"gpu": gpu, "model": spec, "cost_model": cost_model, "tokenize": encode}
        return simulate_replicas(
            cluster, config, requests, trace=trace, slo=slo, as_json=as_json, times=times, **options
        )
    view, result = make_view(live, as_json), None
    observer = observe(trace, slo if slo.limits else None)
    with printed_at_the_end(lambda: _print(result, observer.metrics(), times, as_json)), observer:
        try:
            with showing(view):
                result = run_simulation(
                    config,
                    requests,
                    gpu=gpu,
                    model=spec,
                    cost_model=cost_model,
                    outputs=recorded,
                    tokenize=encode,
                    record=False,
                    emit=None if view is None else view.emit,
                    listeners=[observer.take],
                )
        except KeyboardInterrupt:
            print_note("interrupted: the figures are those of the run up to here")
    if result is None:
        return EXIT_INTERRUPTED
    print_extrapolation(result.num_steps, result.num_extrapolated_steps, cost_model)
    print_refusals(result.rejected)
    return EXIT_USER_ERROR if result.rejected else 0


def _refuse_for_replicas(**options: object) -> None:
    """Raise ``ConfigError`` for options that have to do with the steps of one engine."""
    for name, value in options.items():
        if value:
            raise ConfigError(name, value if value is True else str(value), "with one replica only")


def _load_encoder(model: str) -> Callable[[str], list[int]]:
    from nanovllm.cli.prompts import text_encoder
    from nanovllm.llm.tokenizer import load_tokenizer
    from nanovllm.runner.model_directory import resolve_model

    with show_progress():
        return text_encoder(load_tokenizer(resolve_model(model)), chat=None, system=None)


def _read_outputs(path: Path) -> RecordedOutputs:
    from nanovllm.trace.jsonl import read_trace
    from sim.outputs import RecordedOutputs

    return RecordedOutputs(read_trace(path).events, path)


def _print(result: SimulationResult | None, metrics: Metrics, times: str, as_json: bool) -> None:
    """``result``: None if the run was interrupted. ``times``: see ``CostModelInput.source_of_times``."""
    if as_json:
        print_json({"complete": result is not None, **_run_to_dict(result), "metrics": metrics.to_dict()})
        return
    print_metrics(metrics)
    print_line(times)
    if result is not None:
        print_speed(result.time_s, result.loop_time_s)


def _run_to_dict(result: SimulationResult | None) -> dict[str, Any]:
    if result is None:
        return {}

    return {
        "time_s": result.time_s,
        "time_spent": result.time_spent.parts,
        "loop_time_s": result.loop_time_s,
        "facts": result.facts,
        "num_extrapolated_steps": result.num_extrapolated_steps,
        "rejected": [{"id": request, "reason": error.reason} for request, error in result.rejected],
    }
