"""Lengths and arrivals as one word, of a command line say: ``uniform:100,1000``."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from nanovllm.errors import ConfigError
from sim.generators.arrivals import Arrivals, at_once, gamma, poisson, steps
from sim.generators.lengths import Length, fixed, lognormal, uniform

LENGTHS: dict[str, Callable[..., Length]] = {"fixed": fixed, "uniform": uniform, "lognormal": lognormal}
ARRIVALS: dict[str, Callable[..., Arrivals]] = {"at-once": at_once, "poisson": poisson, "gamma": gamma, "steps": steps}


def parse_length(option: str, text: str) -> Length:
    """The length that ``text`` tells: ``512``, ``uniform:LOW,HIGH`` or ``lognormal:MEDIAN,SIGMA,LOW,HIGH``, the last
    two of which may be left out. Raises ``ConfigError`` that names the ``option``."""
    length: Length = _parse_call(option, text, LENGTHS, default="fixed")
    return length


def parse_arrivals(option: str, text: str) -> Arrivals:
    """The arrivals that ``text`` tells: ``at-once``, ``poisson:RATE_PER_S``, ``gamma:RATE_PER_S,CV`` or
    ``steps:NUM_REQUESTS,EVERY``. Raises ``ConfigError`` that names the ``option``."""
    arrivals: Arrivals = _parse_call(option, text, ARRIVALS)
    return arrivals


def _parse_call(option: str, text: str, functions: Mapping[str, Callable[..., Any]], default: str = "") -> Any:
    """Call the function that ``text`` names, as in ``name:1,2`` or ``name:low=1,high=2``.

    ``default`` is the function that a number alone stands for. Raises ``ConfigError`` that lists the functions and
    their parameters, or what the function itself raises.
    """
    name, _, rest = text.partition(":")
    if name not in functions:
        name, rest = (default, text) if default and text.isdecimal() else ("", "")
    if not name:
        raise ConfigError(option, text, f"one of {_usages(functions)}")
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


def _usages(functions: Mapping[str, Callable[..., Any]]) -> str:
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
