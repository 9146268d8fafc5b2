"""``nanovllm bench``: how fast a card generates, and how far that is from what it could."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nanovllm.cli.console import print_json, refuse_overwriting, refuse_writing_twice
from nanovllm.cli.help import examples
from nanovllm.cli.options import Profile, takes
from nanovllm.config import Config

if TYPE_CHECKING:
    from nanovllm.cli.bench_run import Bench, BenchResult, Rates
    from nanovllm.runner.model_runner import ModelRunner

EXAMPLES = examples(
    "nanovllm bench --dummy-weights qwen3-0.6b",
    "nanovllm bench bs1 shared --dummy-weights qwen3-0.6b --json",
    "nanovllm bench load.jsonl --dummy-weights smollm2-135m --device cpu",
)
LOADS = ("bench256", "bs1", "bs16", "shared")
COPY_BYTES_PER_S = 4.27e12
MATMUL_FLOPS_PER_S = 708e12


@takes("config", Config, panel="Engine", defaults={"max_model_len": 4096})
def bench(
    loads: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOAD...", help=f"{', '.join(LOADS)} (default: all of them), or workload files."),
    ] = None,
    dummy_weights: Annotated[
        str | None, typer.Option(help="Random weights in the shape of this model (`nanovllm models` lists them).")
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each load; the first one warms up.")] = 2,
    copy_bandwidth: Annotated[
        float | None, typer.Option(help=f"For the bound: bytes a second that the card copies ({COPY_BYTES_PER_S:.3g}).")
    ] = None,
    matmul_rate: Annotated[
        float | None,
        typer.Option(help=f"For the bound: operations a second of its matrix products ({MATMUL_FLOPS_PER_S:.3g})."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Then run the last load once more and write its trace to this file.")
    ] = None,
    profile: Profile = None,
    compare_tracing: Annotated[
        bool, typer.Option("--compare-tracing", help="Then measure what writing a trace costs, by as many runs again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a run.")] = False,
    *,
    config: Config,
) -> int:
    """Measure generation: tokens a second, beside the bound that the card's memory and arithmetic set.

    The defaults of the bound's two rates were measured on an NVIDIA H200; a CPU has no bound unless both are given.
    What --trace and --profile write is of runs of their own, which are not among the figures. A request that can never
    run makes the exit code 1.
    """
    from nanovllm.cli.bench_run import Bench
    from nanovllm.cli.bench_table import print_results, print_tracing_costs
    from nanovllm.model_spec import ModelSpec
    from nanovllm.runner.model_runner import ModelRunner

    loads = loads or list(LOADS)
    _check_outputs(trace, profile, loads)
    spec = None
    if dummy_weights is not None:
        spec, config = ModelSpec.preset(dummy_weights), replace(config, model=dummy_weights)
    rates: Rates | None = _choose_rates(copy_bandwidth, matmul_rate)
    runner = ModelRunner(config, spec=spec)
    try:
        if runner.device.type == "cpu" and (copy_bandwidth is None or matmul_rate is None):
            rates = None
        pool = _describe_pool(runner, config)
        benches = [Bench(load, runner, config, rates) for load in loads]
        results: list[BenchResult] = []
        for result in _measure(benches, repetitions, compare_tracing):
            results.append(result)
            if as_json:
                print_json(result.to_dict() | pool | {"facts": runner.facts})
        _record(benches[-1], repetitions, trace, profile)
        facts = runner.facts
    finally:
        runner.close()
    costs = _tracing_costs(results, repetitions)
    if as_json:
        for load, cost in costs.items():
            print_json({"load": load, "tracing_cost": cost})
    else:
        print_results(results, facts, pool)
        print_tracing_costs(costs)
    return 1 if any(bench.num_rejected for bench in benches) else 0


def _choose_rates(copy_bandwidth: float | None, matmul_rate: float | None) -> Rates:
    from nanovllm.cli.bench_run import Rates

    return Rates(
        copy_bytes_per_s=COPY_BYTES_PER_S if copy_bandwidth is None else copy_bandwidth,
        matmul_flops_per_s=MATMUL_FLOPS_PER_S if matmul_rate is None else matmul_rate,
    )


def _check_outputs(trace: Path | None, profile: Path | None, loads: list[str]) -> None:
    from nanovllm.trace.files.packed import check_writable

    inputs = [Path(load) for load in loads if load not in LOADS]
    refuse_overwriting(trace, *inputs)
    refuse_overwriting(profile, *inputs)
    refuse_writing_twice(trace, profile)
    for path in (trace, profile):
        if path is not None:
            check_writable(path)


def _describe_pool(runner: ModelRunner, config: Config) -> dict[str, Any]:
    from nanovllm.runner.kv_cache import block_bytes

    bytes_per_block = block_bytes(runner.spec, config.kvcache_block_size, runner.dtype)
    return {"num_kv_blocks": runner.num_kv_blocks, "kv_pool_gib": runner.num_kv_blocks * bytes_per_block / 2**30}


def _measure(benches: list[Bench], repetitions: int, compare_tracing: bool) -> Iterator[BenchResult]:
    for bench in benches:
        for repetition in range(repetitions):
            yield bench.run(repetition)
        if compare_tracing:
            yield from _measure_traced(bench, repetitions)


def _measure_traced(bench: Bench, num_pairs: int) -> Iterator[BenchResult]:
    """Pairs of runs, one traced and one not; which comes first alternates, since the card grows warm."""
    from nanovllm.trace.jsonl import TraceWriter

    with TemporaryDirectory() as directory:
        for pair in range(num_pairs):
            for is_traced in (True, False) if pair % 2 else (False, True):
                if is_traced:
                    with TraceWriter(Path(directory) / f"{pair}.jsonl") as writer:
                        yield bench.run(num_pairs + pair, writer.emit)
                else:
                    yield bench.run(num_pairs + pair)


def _tracing_costs(results: list[BenchResult], repetitions: int) -> dict[str, float]:
    """Load -> share of its throughput that tracing takes, over the pairs of ``_measure_traced``."""
    paired = [result for result in results if result.repetition >= repetitions]
    wall_s: dict[str, dict[bool, float]] = {}
    for result in paired:
        of_load = wall_s.setdefault(result.load, {False: 0.0, True: 0.0})
        of_load[result.is_traced] += result.wall_s
    return {load: 1 - of_load[False] / of_load[True] for load, of_load in wall_s.items()}


def _record(bench: Bench, repetition: int, trace: Path | None, profile: Path | None) -> None:
    """Run once more for each of the two files that is wanted."""
    if trace is not None:
        from nanovllm.trace.jsonl import TraceWriter

        with TraceWriter(trace) as writer:
            bench.run(repetition, writer.emit)
    if profile is not None:
        bench.run(repetition, profile=profile)
