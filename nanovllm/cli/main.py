"""Where the ``nanovllm`` command begins: its table of contents, and what becomes of errors.

Command modules import what they need inside their functions, so that help and errors come at once and a machine
without torch can simulate, check and draw.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from nanovllm import __version__
from nanovllm.cli import (
    bench,
    calibrate,
    compare,
    demo,
    generate,
    models,
    policies,
    reuse,
    simulate,
    sweep,
    trace,
    workload,
)
from nanovllm.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USER_ERROR, print_error
from nanovllm.cli.help import Command
from nanovllm.errors import UserError, WorkerError

OPTIONAL_MODULES = {
    "filelock": "sweep",
    "gguf": "engine",
    "joblib": "sweep",
    "matplotlib": "viz",
    "pyarrow": "sweep",
    "ray": "cluster",
    "safetensors": "engine",
    "torch": "engine",
    "transformers": "engine",
}
"""Modules of the optional dependencies, and the extra that brings each."""

app = typer.Typer(
    name="nanovllm",
    help="An LLM serving engine to watch: run a model, simulate a GPU, and look at every decision of the scheduler.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nanovllm {__version__}")
        raise typer.Exit


@app.callback()
def _without_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("demo", cls=Command, epilog=demo.EXAMPLES)(demo.demo)
app.command("generate", cls=Command, epilog=generate.EXAMPLES)(generate.generate)
app.command("simulate", cls=Command, epilog=simulate.EXAMPLES)(simulate.simulate)
app.command("sweep", cls=Command, epilog=sweep.EXAMPLES)(sweep.sweep)
app.command("bench", cls=Command, epilog=bench.EXAMPLES)(bench.bench)
app.command("calibrate", cls=Command, epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command("compare", cls=Command, epilog=compare.EXAMPLES)(compare.compare)
app.command("policies", cls=Command, epilog=policies.EXAMPLES)(policies.policies)
workload.app.command("reuse", cls=Command, epilog=reuse.EXAMPLES)(reuse.reuse)
app.add_typer(workload.app, name="workload")
app.add_typer(trace.app, name="trace")
app.add_typer(models.app, name="models")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; ``arguments`` default to those of the process. Returns the exit code.

    A user's mistake is one line on standard error and code 2. Anything else that goes wrong is ours and shows.
    """
    try:
        result = _command().main(arguments, prog_name="nanovllm", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, `head` for one. Python would complain when it flushes the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserError, OSError, typer.TyperException) as error:
        print_error(_describe(error))
        return EXIT_USER_ERROR
    except WorkerError as error:
        print_error(str(error))
        return EXIT_FAILED
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL_MODULES:
            raise
        print_error(f"this needs {error.name}: pip install 'nanovllm-lab[{OPTIONAL_MODULES[error.name]}]'")
        return EXIT_USER_ERROR
    return result if isinstance(result, int) else 0


@cache
def _command() -> Any:
    """The tree of commands, which takes longer to make than most mistakes to be told."""
    return get_command(app)


def _describe(error: Exception) -> str:
    match error:
        case typer.TyperException():
            message, context = error.format_message().rstrip("."), getattr(error, "ctx", None)
            hint = f"; see {context.command_path} --help" if context is not None else ""
            return message[:1].lower() + message[1:] + hint
        case OSError(filename=str(name), strerror=str(problem)):
            return f"{name}: {problem[:1].lower()}{problem[1:]}"
        case OSError(strerror=str(problem)):
            return problem[:1].lower() + problem[1:]
        case _:
            return str(error)
