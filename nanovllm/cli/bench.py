"""``nanovllm bench``: how fast a card generates, and how far that is from what it could."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import print_json, print_note
from nanovllm.cli.help import examples
from nanovllm.cli.options import takes
from nanovllm.config import Config

if TYPE_CHECKING:
    from nanovllm.runner.model_runner import ModelRunner
    from sim.workload import WorkloadRequest

EXAMPLES = examples(
    "nanovllm bench --dummy-weights qwen3-0.6b",
    "nanovllm bench bs1 shared --dummy-weights qwen3-0.6b --json",
    "nanovllm bench load.jsonl --model ~/models/Qwen3-0.6B",
)
COPY_BYTES_PER_S = 4.27e12
MATMUL_FLOPS_PER_S = 708e12


@dataclass(frozen=True)
class BenchResult:
    """One repetition of one load."""

    load: str
    repetition: int
    tokens_per_s: float
    """Generated tokens over the time from the first step's start to the last one's end."""
    bound_tokens_per_s: float
    """What bytes and operations alone would allow, see ``Bound``."""
    wall_s: float
    num_prefill_steps: int
    prefill_step_ms: float
    num_decode_steps: int
    decode_step_ms: float
    num_kv_blocks: int

    @property
    def share_of_bound(self) -> float:
        """1: as fast as bytes and operations allow."""
        return self.tokens_per_s / self.bound_tokens_per_s


@takes("config", Config, panel="Engine", defaults={"max_model_len": 4096})
def bench(
    loads: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOAD...", help="bench256, bs1, bs16, shared (default: all four), or workload files."),
    ] = None,
    dummy_weights: Annotated[
        str | None, typer.Option(help="Random weights in the shape of this model (`nanovllm models` lists them).")
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each load; the first one warms up.")] = 2,
    copy_bandwidth: Annotated[
        float, typer.Option(help="For the bound: bytes a second that the card copies.")
    ] = COPY_BYTES_PER_S,
    matmul_rate: Annotated[
        float, typer.Option(help="For the bound: operations a second of its matrix products.")
    ] = MATMUL_FLOPS_PER_S,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a repetition.")] = False,
    *,
    config: Config,
) -> int:
    """Measure generation: tokens a second, beside the bound that the card's memory and arithmetic set.

    The defaults of the bound's two rates were measured on an NVIDIA H200.
    """
    from nanovllm.model_spec import ModelSpec
    from nanovllm.runner.model_runner import ModelRunner

    spec = None if dummy_weights is None else ModelSpec.preset(dummy_weights)
    runner = ModelRunner(config, spec=spec)
    try:
        results = []
        for load in loads or ["bench256", "bs1", "bs16", "shared"]:
            for repetition in range(repetitions):
                requests = _read(load, repetition)
                bound_s = _bound_s(requests, runner, config, copy_bandwidth, matmul_rate)
                results.append(_measure(load, repetition, requests, runner, config, bound_s))
                if as_json:
                    print_json(asdict(results[-1]) | {"share_of_bound": results[-1].share_of_bound} | _versions())
    finally:
        runner.close()
    if not as_json:
        _print_table(results)
    return 0


def _read(load: str, repetition: int) -> list[WorkloadRequest]:
    from sim.generators.reference import REFERENCE_LOADS
    from sim.workload import read_workload

    return REFERENCE_LOADS[load](repetition) if load in REFERENCE_LOADS else read_workload(Path(load))


def _measure(
    load: str,
    repetition: int,
    requests: Iterable[WorkloadRequest],
    runner: ModelRunner,
    config: Config,
    bound_s: float,
) -> BenchResult:
    from nanovllm.engine.engine import Engine
    from sim.workload import Prompts, to_requests

    engine = Engine(config, runner, vocab_size=runner.vocab_size)
    prompts = Prompts(seed=config.seed, vocab_size=runner.vocab_size)
    ready = list(to_requests(requests, prompts))
    spent: dict[str, list[float]] = {"prefill": [], "decode": []}
    num_tokens = 0
    start_s = time.perf_counter()
    for result in engine.run(ready):
        spent[result.batch.phase].append(result.finished_s - result.started_s)
        num_tokens += sum(seq.num_completion_tokens for seq in result.finished)
    wall_s = time.perf_counter() - start_s
    for _, error in engine.rejected:
        print_note(str(error))
    return BenchResult(
        load=load,
        repetition=repetition,
        tokens_per_s=num_tokens / wall_s,
        bound_tokens_per_s=num_tokens / bound_s,
        wall_s=wall_s,
        num_prefill_steps=len(spent["prefill"]),
        prefill_step_ms=_mean(spent["prefill"]) * 1e3,
        num_decode_steps=len(spent["decode"]),
        decode_step_ms=_mean(spent["decode"]) * 1e3,
        num_kv_blocks=runner.num_kv_blocks,
    )


def _bound_s(
    requests: Iterable[WorkloadRequest],
    runner: ModelRunner,
    config: Config,
    bandwidth_bytes_per_s: float,
    flops_per_s: float,
) -> float:
    """The same run, decision by decision, on a card that does nothing but read and multiply."""
    from sim import simulate
    from sim.cost_models.bound import Bound

    bound = Bound(
        model=runner.spec,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        flops_per_s=flops_per_s,
        shared_block_size=config.kvcache_block_size,
    )
    config = replace(config, num_kvcache_blocks=runner.num_kv_blocks)
    return simulate(config, requests, model=runner.spec, cost_model=bound, record=False).time_s


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _versions() -> dict[str, str]:
    import torch

    from nanovllm import __version__

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"nanovllm": __version__, "torch": torch.__version__, "device": card}


def _print_table(results: list[BenchResult]) -> None:
    from rich.console import Console
    from rich.table import Table

    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    table = Table(title=versions)
    table.add_column("load")
    for heading in ("run", "tokens/s", "bound", "of bound", "time s", "prefill", "decode"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.load,
            str(result.repetition),
            f"{result.tokens_per_s:,.0f}",
            f"{result.bound_tokens_per_s:,.0f}",
            f"{result.share_of_bound:.0%}",
            f"{result.wall_s:.2f}",
            f"{result.num_prefill_steps} × {result.prefill_step_ms:.1f} ms",
            f"{result.num_decode_steps} × {result.decode_step_ms:.2f} ms",
        )
    Console().print(table)
    Console().print(f"KV pool: {results[-1].num_kv_blocks:,} blocks")
