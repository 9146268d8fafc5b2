"""What goes to the screen: results to standard output, notes and errors to standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os.path import realpath
from typing import TYPE_CHECKING, Any

import typer

from nanovllm.errors import TraceError, UserError, printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table


EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
MAX_REFUSAL_LINES = 5


def print_error(message: str) -> None:
    """One line on standard error, whatever line breaks ``message`` holds."""
    typer.echo(f"error: {printable(' '.join(message.split()))}", err=True)


def print_note(message: str) -> None:
    """Something worth knowing that is no result: one line on standard error."""
    typer.echo(f"note: {printable(' '.join(message.split()))}", err=True)


def print_line(line: str) -> None:
    """One line on standard output, whatever it is made of: ids and file names come from anywhere."""
    typer.echo(printable(line))


def print_text(text: str, *, nl: bool = True, **style: Any) -> None:
    """Text on standard output, with its line breaks and tabs. ``style``: as for ``typer.secho``."""
    typer.secho(printable(text, keep="\n\t"), nl=nl, **style)


def print_json(value: Any) -> None:
    """One line of JSON on standard output, for programs."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(table: Table) -> None:
    """A rich table on standard output; where that is no terminal, as wide as it needs to be."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)


def print_refusals(rejected: Sequence[tuple[object, Exception]]) -> None:
    """Errors for requests that can never run: a line each for the first few, and how many more there are."""
    for _, error in rejected[:MAX_REFUSAL_LINES]:
        print_error(str(error))
    if len(rejected) > MAX_REFUSAL_LINES:
        print_error(f"{len(rejected) - MAX_REFUSAL_LINES:,} more requests can never run")


@contextmanager
def printed_at_the_end(print_figures: Callable[[], None]) -> Iterator[None]:
    """Print the figures of a run when the block is left, also if its trace could not be written to the end."""
    try:
        yield
    except TraceError:
        print_figures()
        raise
    print_figures()


@contextmanager
def show_progress() -> Iterator[None]:
    """While the block runs, let the engine's own modules tell what takes long: fetching a model, say."""
    logger, handler = logging.getLogger("nanovllm"), _NoteHandler(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


def refuse_overwriting(output: Path | None, *inputs: Path | None) -> None:
    """Raise ``UserError`` if a command would write over a file that it reads."""
    if output is not None and output.exists():
        for path in inputs:
            if path is not None and path.exists() and path.samefile(output):
                raise UserError(f"{output}: is read by this command: another file is needed to write to")


def refuse_writing_twice(first: Path | None, second: Path | None) -> None:
    """Raise ``UserError`` if a command would write two things to one file."""
    if first is not None and second is not None and realpath(first) == realpath(second):
        raise UserError(f"{second}: is written twice by this command: another file is needed for one of the two")
