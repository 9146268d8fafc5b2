"""What goes to the screen: results to standard output, notes and errors to standard error."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def print_error(message: str) -> None:
    """One line on standard error, whatever line breaks ``message`` holds."""
    typer.echo(f"error: {' '.join(message.split())}", err=True)


def print_note(message: str) -> None:
    """Something worth knowing that is no result: one line on standard error."""
    typer.echo(f"note: {' '.join(message.split())}", err=True)


def print_json(value: Any) -> None:
    """One line of JSON on standard output, for programs."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(table: Table) -> None:
    """A rich table on standard output; where that is no terminal, as wide as it needs to be."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)
