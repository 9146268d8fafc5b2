"""Choices with parameters as one word of a command line: ``uniform:100,1000``."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from nanovllm.errors import ConfigError


def parse_call(option: str, text: str, functions: Mapping[str, Callable[..., Any]], default: str = "") -> Any:
    """Call the function that ``text`` names, as in ``name:1,2`` or ``name:low=1,high=2``.

    ``default`` is the function that a number alone stands for. Raises ``ConfigError`` that lists the functions and
    their parameters, or what the function itself raises.
    """
    name, _, rest = text.partition(":")
    if name not in functions:
        name, rest = (default, text) if default and text.isdecimal() else ("", "")
    if not name:
        raise ConfigError(option, text, f"one of {usage(functions)}")
    positional, named = [], {}
    for item in filter(None, rest.split(",")):
        key, has_name, value = item.rpartition("=")
        if has_name:
            named[key] = value
        else:
            positional.append(value)
    signature = inspect.signature(functions[name])
    try:
        bound = signature.bind(*positional, **named).arguments
        types = typing.get_type_hints(functions[name])
        values = {parameter: _convert(value, types[parameter]) for parameter, value in bound.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(option, text, f"{_usage(name, functions[name])} is needed ({error})") from None
    return functions[name](**values)


def usage(functions: Mapping[str, Callable[..., Any]]) -> str:
    """How each function is called, in the words of its parameters."""
    return " or ".join(_usage(name, function) for name, function in functions.items())


def _usage(name: str, function: Callable[..., Any]) -> str:
    text = ""
    for parameter in inspect.signature(function).parameters.values():
        word = ("," if text else "") + parameter.name.upper()
        text += word if parameter.default is parameter.empty else f"[{word}]"
    return f"{name}:{text}" if text else name


def _convert(value: str, annotation: Any) -> Any:
    number = next(choice for choice in (int, float) if choice is annotation or choice in typing.get_args(annotation))
    return number(value)
