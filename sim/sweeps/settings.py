"""What a cell of a sweep may set: a flat list of names, and the checked values that they stand for together.

The names are those of the options of ``nanovllm simulate`` and ``nanovllm workload make``, so that nobody has to learn
others.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from nanovllm.checks import check_whole_number, is_number, is_unicode
from nanovllm.config import OPTIONS_OF_REAL_RUNS, Config
from nanovllm.errors import ConfigError
from nanovllm.own_classes import check_name
from nanovllm.trace.metrics.slo import SLO_OPTIONS, Slo
from sim.cluster import ROUTERS
from sim.cluster.simulation import MAX_REPLICAS
from sim.hardware import find_gpu
from sim.measured_times import DEFAULT_GPU
from sim.sweeps.loads import AgentsLoad, DrawnLoad, FileLoad, Load, SessionsLoad
from sim.sweeps.rate_search import HIGHEST_START, LOWEST_START

Value = str | int | float | bool | tuple[int, ...] | None
"""Of a setting."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What the engine runs on, and how often. Raises ``ConfigError``."""

    gpu: str | None = None
    """None: the one that was measured, where ``table`` or ``calibration`` tells it, or else ``DEFAULT_GPU``."""
    table: str | None = None
    """A directory of latency tables, see ``sim.cost_models.latency_tables``."""
    calibration: str | None = None
    """A file that ``nanovllm calibrate`` wrote."""
    replicas: int = 1
    router: str = "round_robin"

    def __post_init__(self) -> None:
        if self.gpu is not None:
            find_gpu(self.gpu)
        elif self.table is None and self.calibration is None:
            object.__setattr__(self, "gpu", DEFAULT_GPU)
        check_whole_number("replicas", self.replicas, 1, MAX_REPLICAS)
        check_name("router", self.router, ROUTERS)


DEFAULT_RATE_TOLERANCE = 0.02


@dataclass(frozen=True, kw_only=True)
class RateSearch:
    """Whether the cell is one run, or a search for the highest rate that a service level objective allows."""

    find_rate: float | None = None
    """The share of the requests that must meet the objective."""
    rate_tolerance: float = DEFAULT_RATE_TOLERANCE
    """The search ends when the lowest rate that failed is at most so much above the highest that did not."""

    def __post_init__(self) -> None:
        if self.find_rate is not None and not (is_number(self.find_rate) and 0 < self.find_rate <= 1):
            raise ConfigError("find_rate", self.find_rate, "a share of the requests, above 0, at most 1")
        if not (is_number(self.rate_tolerance) and 0.001 <= self.rate_tolerance <= 1):
            raise ConfigError("rate_tolerance", self.rate_tolerance, "a number from 0.001 to 1")


@dataclass(frozen=True, kw_only=True)
class CellSettings:
    """All that a cell's figures depend on, but for what files hold."""

    config: Config
    deployment: Deployment
    load: Load
    slo: Slo
    search: RateSearch


SLO_NAMES = {option: limit for limit, option in SLO_OPTIONS.items()}
"""Settings that are limits, and the fields of ``Slo`` that they stand for."""

_LOADS: dict[str, type] = {"workload": FileLoad, "num_sessions": SessionsLoad, "num_agents": AgentsLoad}
"""What kind of load a setting chooses; without one of them, requests are drawn."""
_GROUPS: tuple[type, ...] = (Config, Deployment, FileLoad, DrawnLoad, SessionsLoad, AgentsLoad, RateSearch)


def _types() -> dict[str, Any]:
    known: dict[str, Any] = {}
    for group in _GROUPS:
        hints = get_type_hints(group)
        known.update({item.name: hints[item.name] for item in fields(group)})
    for name in OPTIONS_OF_REAL_RUNS:
        del known[name]
    return known | dict.fromkeys(SLO_NAMES, float | None)


TYPES: dict[str, Any] = _types()
"""Every setting by its name, with its type."""


def read_setting(name: str, value: object) -> tuple[str, Value]:
    """A setting as files and command lines have it, as a name and a value of the right type.

    Raises ``ConfigError`` for a name that there is not, or a value of another type.
    """
    known = name.replace("-", "_")
    if known not in TYPES:
        raise ConfigError(name, value, f"there is no such setting; the settings are {', '.join(TYPES)}")
    annotation = TYPES[known]
    choices = _choices(annotation)
    if value in ("null", "none") and NoneType in choices:
        value = None
    if _plain(choices) is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)  # a length, say
    try:
        converted: Value = msgspec.convert(value, annotation, strict=not isinstance(value, str))
    except msgspec.ValidationError:
        raise ConfigError(known, value, f"{_IN_WORDS[_plain(choices)]} is needed") from None
    if isinstance(converted, str) and not is_unicode(converted):
        raise ConfigError(known, value, "a text that UTF-8 can tell is needed: stores and tables hold no other")
    return known, converted


def column_type(name: str) -> type:
    """What a table has for a setting: str, bool, int or float. Several numbers are told as text."""
    choices = _choices(TYPES[name])
    return str if any(get_origin(choice) is tuple for choice in choices) else _plain(choices)


def _choices(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _plain(choices: tuple[Any, ...]) -> type:
    """The first of several types that is none of several values."""
    found: type = next(choice for choice in choices if choice in _IN_WORDS)
    return found


_IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check_settings(settings: Mapping[str, Value]) -> CellSettings:
    """What the settings stand for together, with the defaults of all others. Raises ``ConfigError``."""
    settings = _with_defaults(settings)
    kinds = [name for name in _LOADS if settings.get(name) is not None]
    if len(kinds) > 1:
        raise ConfigError(kinds[1], settings[kinds[1]], f"not together with {kinds[0]}")
    load_type = _LOADS[kinds[0]] if kinds else DrawnLoad
    taken = {name for group in (Config, Deployment, load_type, RateSearch) for name in _names(group)}
    for name in settings:
        if name not in taken and name not in SLO_NAMES and settings[name] is not None:
            raise ConfigError(name, settings[name], f"it is not for {_WORDS[load_type]}")

    def build(group: type) -> Any:
        return group(**{name: settings[name] for name in _names(group) if name in settings})

    limits = {limit: settings.get(name) for name, limit in SLO_NAMES.items()}
    slo, search = Slo(**limits), build(RateSearch)  # type: ignore[arg-type]
    if search.find_rate is not None and not slo.limits:
        raise ConfigError("find_rate", search.find_rate, f"a limit to meet is needed: {', '.join(SLO_NAMES)}")
    load: Load = build(load_type)
    if search.find_rate is not None and load.rate is not None and not LOWEST_START <= load.rate <= HIGHEST_START:
        raise ConfigError("rate", load.rate, f"from {LOWEST_START:g} to {HIGHEST_START:g} where a search begins there")
    return CellSettings(config=build(Config), deployment=build(Deployment), load=load, slo=slo, search=search)


def _with_defaults(settings: Mapping[str, Value]) -> dict[str, Value]:
    """A search begins at some rate. Unless a number of requests is given, they come for a time (``steady_rate``)."""
    chosen = dict(settings)
    is_drawn = all(chosen.get(name) is None for name in _LOADS)
    if chosen.get("find_rate") is not None and is_drawn and chosen.get("arrivals") is None:
        chosen["rate"] = 1.0 if chosen.get("rate") is None else chosen["rate"]
    return chosen


_WORDS: dict[type, str] = {
    FileLoad: "requests from a file (workload)",
    DrawnLoad: "drawn requests (none of workload, num_sessions and num_agents is set)",
    SessionsLoad: "conversations (num_sessions)",
    AgentsLoad: "agents (num_agents)",
}


def _names(group: type) -> Iterable[str]:
    return (item.name for item in fields(group))
