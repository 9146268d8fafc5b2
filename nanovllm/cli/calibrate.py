"""``nanovllm calibrate``: what the steps of this machine take, in a file for the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import print_table, show_progress
from nanovllm.cli.help import examples
from nanovllm.cli.options import takes
from nanovllm.config import Config
from nanovllm.errors import ConfigError

if TYPE_CHECKING:
    from nanovllm.runner.model_runner import ModelRunner
    from sim.calibration import Calibration

EXAMPLES = examples(
    "nanovllm calibrate --dummy-weights qwen3-0.6b --device cuda --dtype bfloat16 -o h200.json",
    "nanovllm calibrate --model ~/models/Qwen3-0.6B -o card.json",
)


@takes("config", Config, panel="Engine", defaults={"max_model_len": 4096})
def calibrate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the calibration to this file.")],
    dummy_weights: Annotated[
        str | None, typer.Option(help="Random weights in the shape of this model (`nanovllm models` lists them).")
    ] = None,
    *,
    config: Config,
) -> int:
    """Measure steps of the real engine, and fit a cost model to them: simulate --calibration uses it.

    The steps are a grid over batch, context and chunk, as far as the KV pool has room; on a GPU they take about two
    minutes. One in five is not fitted to, but predicted: the table tells how well. Nothing else should run meanwhile.
    """
    from nanovllm.trace.files.packed import check_writable
    from sim.calibration import calibrate as measure, write_calibration
    from sim.cost_models import Sizes

    if not (config.model or dummy_weights):
        raise ConfigError("model", config.model, "the model to measure is needed, or dummy_weights")
    check_writable(output)
    with show_progress():
        runner = _load(config, dummy_weights)
    try:
        calibration = measure(
            runner,
            runner.config,
            model=dummy_weights or config.model,
            vocab_size=runner.vocab_size,
            shape=runner.spec,
            reads_shared_blocks_once=runner.attention == "triton",
            sizes=Sizes(**runner.graph_sizes._asdict()),
            report=_show_count,
        )
    finally:
        runner.close()
    write_calibration(output, calibration)
    _print(calibration)
    return 0


def _load(config: Config, dummy_weights: str | None) -> ModelRunner:
    from nanovllm.model_spec import ModelSpec
    from nanovllm.runner.model_runner import ModelRunner

    return ModelRunner(config, spec=None if dummy_weights is None else ModelSpec.preset(dummy_weights))


def _show_count(number: int, total: int) -> None:
    if number % 50 == 0 or number == total:
        typer.echo(f"{number} of {total} steps", err=True)


def _print(calibration: Calibration) -> None:
    from rich.table import Table

    title = ", ".join([calibration.model, *map(str, (calibration.facts.get("device"), calibration.facts.get("dtype")))])
    table = Table("step", title=title, caption="error of the time on the device, of steps that were not fitted to")
    for heading in ("fitted", "held out", "mean", "p90", "worst", "bias"):
        table.add_column(heading, justify="right")
    for kind, error in calibration.errors.items():
        shares = (f"{error.mean:.1%}", f"{error.p90:.1%}", f"{error.worst:.1%}", f"{error.bias:+.1%}")
        table.add_row(kind, str(error.num_fitted), str(error.num_held_out), *shares)
    print_table(table)
