"""Writes the reference of the `nanovllm` command from the command itself, so that it cannot say anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from typer.main import get_command

from nanovllm.cli.main import app as nanovllm

PAGE = "reference/commands"
"""The page at whose end the commands are listed."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", append_commands)
    return {"parallel_read_safe": True}


def append_commands(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add all commands, as Markdown, to the text of their page."""
    if page == PAGE:
        root = get_command(nanovllm)
        source[0] += "\n".join(describe(root, context_of(root, "nanovllm")))


def context_of(command: Any, name: str, parent: Any = None) -> Any:
    """What a command needs to tell of its options."""
    return command.context_class(command, info_name=name, parent=parent)


def describe(command: Any, context: Any) -> Iterator[str]:
    """A section for each command below this one, and for its own subcommands."""
    for name, child in command.commands.items():
        child_context = context_of(child, name, context)
        words = child_context.command_path
        level = "#" * len(words.split())
        yield f"\n({words.replace(' ', '-')})=\n{level} `{words}`\n"
        yield escaped(child.help) + "\n"
        if getattr(child, "commands", None) is None or child.invoke_without_command:
            yield from describe_options(child, child_context)
        if child.epilog:
            lines = [line.strip() for line in child.epilog.splitlines() if line.startswith("  ")]
            yield "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])
        if hasattr(child, "commands"):
            yield from describe(child, child_context)


def describe_options(command: Any, context: Any) -> Iterator[str]:
    """The arguments and options under the headings that `--help` gives them."""
    yield f"```{{program}} {context.command_path}\n```"
    heading = None
    for parameter in command.get_params(context):
        kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
        wanted = getattr(parameter, "rich_help_panel", None) or kind
        signature, text = parameter.get_help_record(context)
        if "--help" in parameter.opts:
            continue
        if wanted != heading:
            heading = wanted
            yield f"```{{rubric}} {heading}\n```"
        text = re.sub(r"  \[(.*)\]$", r" *(\1)*", escaped(text))
        yield f"````{{option}} {signature.replace(' / ', ', ')}\n{text}\n````"


def escaped(text: str) -> str:
    """Text of a terminal as Markdown that reads the same."""
    return re.sub(r"([*_<])", r"\\\1", text)
