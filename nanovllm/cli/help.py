"""How the help of a command looks: options under headings, examples at the end, names never cut short."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose options stand under the heading that ``rich_help_panel`` gives them.

    Typer has such headings in its rich help only, which cuts long names to fit them into a table.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, heading by heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or kind
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def examples(*lines: str) -> str:
    """The end of a command's help: how to call it."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", heading, *(f"  {line}" for line in lines)])  # \b: not to be wrapped
