"""A part of a sweep: the cells that have some of the values that vary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nanovllm.errors import ConfigError, UserError
from sim.sweeps.row import as_in_row
from sim.sweeps.run import SweepResult
from sim.sweeps.settings import Value, read_setting
from sim.sweeps.sweep import TOGETHER, Sweep

MAX_VALUES_TOLD = 12
"""So many values of a setting stand in an error."""

Conditions = Mapping[str, Sequence[Value]]
"""By the name of a setting that varies, values of which a cell must have one."""


@dataclass(frozen=True, kw_only=True)
class PartOfSweep(Sweep):
    """Some cells of a sweep. A setting of which one value was chosen varies no longer."""

    def _refuse_what_no_cell_can_have(self) -> None:
        """The whole was checked; here all cells may be such as fail."""


def read_conditions(sweep: Sweep, where: Iterable[tuple[str, str]]) -> Conditions:
    """Conditions as a command line has them, names with values; several values of a name: any of them.

    Raises ``ConfigError`` for a name that does not vary, a value that no cell has, or if no cell meets all conditions.
    """
    conditions: dict[str, list[Value]] = {}
    for name, text in where:
        try:
            known, value = read_setting(name, text)
        except UserError:
            known, value = name, text
        if value not in _values(sweep).get(known, ()):
            raise _refused(sweep, f"{name}={text}")
        conditions.setdefault(known, []).append(value)
    if not all(_axes(sweep, conditions).values()):
        raise _refused(sweep, ", ".join(f"{name}={text}" for name, text in where))
    return conditions


def part_of(sweep: Sweep, conditions: Conditions) -> Sweep:
    """The sweep whose cells meet the conditions."""
    fixed, vary = dict(sweep.settings), {}
    for axis, values in _axes(sweep, conditions).items():
        names = axis.split(TOGETHER)
        if len(values) == 1 and not conditions.keys().isdisjoint(names):
            fixed.update(zip(names, values[0], strict=True))
        else:
            vary[axis] = values if len(names) > 1 else [value for (value,) in values]
    return PartOfSweep(settings=fixed, vary=vary)


def part_of_result(result: SweepResult, conditions: Conditions) -> SweepResult:
    """The rows of the cells that meet the conditions."""
    allowed = {name: {as_in_row(value) for value in values} for name, values in conditions.items()}
    rows = [row for row in result.rows if all(row[name] in values for name, values in allowed.items())]
    return replace(result, sweep=part_of(result.sweep, conditions), rows=rows)


def _axes(sweep: Sweep, conditions: Conditions) -> dict[str, list[tuple[Any, ...]]]:
    """What is left of each axis, as tuples of a value for each of its names."""
    axes: dict[str, list[tuple[Any, ...]]] = {}
    for axis, values in sweep.vary.items():
        names = axis.split(TOGETHER)
        together = values if len(names) > 1 else [(value,) for value in values]
        allowed = [conditions.get(name) for name in names]
        axes[axis] = [
            value
            for value in together
            if all(some is None or part in some for part, some in zip(value, allowed, strict=True))
        ]
    return axes


def _values(sweep: Sweep) -> dict[str, list[Value]]:
    """By name, the values of what varies."""
    return {
        name: list(dict.fromkeys(values))
        for axis, together in _axes(sweep, {}).items()
        for name, values in zip(axis.split(TOGETHER), zip(*together, strict=True), strict=True)
    }


def _refused(sweep: Sweep, told: str) -> ConfigError:
    axes = [f"{name}={_list(values)}" for name, values in _values(sweep).items()]
    return ConfigError("where", told, f"cells have {'; '.join(axes)}" if axes else "nothing varies in this sweep")


def _list(values: Sequence[Value]) -> str:
    words = ["none" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    more = len(words) - MAX_VALUES_TOLD
    return ",".join(words[:MAX_VALUES_TOLD]) + (f" and {more:,} more" if more > 0 else "")
