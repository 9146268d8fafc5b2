"""Options of a command made from the fields of a dataclass: name, type, default and docstring become the option.

A field that is added to ``Config`` is an option of every command that takes one; nothing here knows any field.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from nanovllm.errors import ConfigError

Profile = Annotated[
    Path | None,
    typer.Option(help="Write what torch's profiler sees to this file (.json, .json.gz), with a range a step."),
]
SLO_PANEL = "Service level objective"
Command = TypeVar("Command", bound=Callable[..., int | None])


def takes(
    parameter: str,
    dataclass: type,
    *,
    panel: str,
    defaults: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> Callable[[Command], Command]:
    """Let a command receive a ``dataclass`` as its ``parameter``: one option per field stands for it.

    The dataclass checks the values. ``panel`` is the heading of these options in the help. ``defaults`` holds
    what this command has instead of the fields' own defaults, ``names`` gives a field's option another name
    (with underscores), where two dataclasses share one; fields of ``without`` get none. The command's docstring is its
    help.
    """
    wanted = [field.name for field in fields(dataclass) if field.name not in without]
    option_names = {name: (names or {}).get(name, name) for name in wanted}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**values: Any) -> int | None:
            chosen = {field: values.pop(option) for field, option in option_names.items()}
            given = {field: _plain(value) for field, value in chosen.items() if value is not None}
            return command(**values, **{parameter: _make(dataclass, given, option_names)})

        signature = inspect.signature(command, eval_str=True)
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values() if p.name != parameter]
        options = _options(dataclass, panel, defaults or {}, option_names)
        with_options.__dict__["__signature__"] = signature.replace(parameters=[*own, *options])
        with_options.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
        return with_options  # type: ignore[return-value]

    return decorate


def field_docs(dataclass: type) -> dict[str, str]:
    """Each field's docstring, the text under it in the source, on one line. A name in double backticks that is a
    tuple of the same module is replaced by what the tuple holds: ``MODES`` reads as the modes."""
    namespace = vars(sys.modules[dataclass.__module__])

    def plain(match: re.Match[str]) -> str:
        value = namespace.get(match[1])
        return ", ".join(map(str, value)) if isinstance(value, tuple) else match[1]

    definition = ast.parse(textwrap.dedent(inspect.getsource(dataclass))).body[0]
    assert isinstance(definition, ast.ClassDef), f"{dataclass!r} is not a class"
    docs = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = re.sub(r"``(.+?)``", plain, " ".join(text.split()))
    return docs


def _options(
    dataclass: type, panel: str, defaults: Mapping[str, Any], names: Mapping[str, str]
) -> list[inspect.Parameter]:
    docs, types = field_docs(dataclass), get_type_hints(dataclass)
    options = []
    for field in fields(dataclass):
        if field.name not in names:
            continue
        annotation, is_repeatable = _option_type(types[field.name])
        default = defaults.get(field.name, _default(field))
        if is_repeatable:  # given never, the dataclass's own default holds
            default = list(default) if isinstance(default, tuple) and default else None
        option = typer.Option(help=docs.get(field.name, ""), rich_help_panel=panel)
        options.append(
            inspect.Parameter(
                names[field.name],
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[annotation, option],
            )
        )
    return options


def _make(dataclass: type, given: dict[str, Any], option_names: Mapping[str, str]) -> Any:
    """The dataclass; what it refuses is called as the option is, which the user knows."""
    try:
        return dataclass(**given)
    except ConfigError as error:
        option = option_names.get(error.field, error.field)
        raise ConfigError(option, error.value, error.allowed) from None


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _option_type(annotation: Any) -> tuple[Any, bool]:
    """The type of a field as typer takes it, and whether the option may be given several times: if several will do."""
    for candidate in (annotation, *get_args(annotation)):
        if get_origin(candidate) in (tuple, Sequence):
            return list[get_args(candidate)[0]] | None, True  # type: ignore[misc]
    chosen = [candidate for candidate in get_args(annotation) if candidate is not NoneType]
    assert len(chosen) <= 1, f"no option can stand for a field of type {annotation}"
    return annotation, False


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
