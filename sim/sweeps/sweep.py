"""A sweep: settings that all its cells have, and settings that vary, each value with each of the others'."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

from nanovllm.errors import ConfigError, UserError
from nanovllm.model_spec import ModelSpec
from sim.sweeps.cell_key import FileDigests, cell_key
from sim.sweeps.settings import Value, check_settings, read_setting

TOGETHER = "+"
"""Joins the names of settings that vary together, as in ``gpu+tensor_parallel_size``."""
MAX_CELLS = 100_000
"""Each is checked before the first one runs, which takes a minute for so many."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of a sweep: one simulation, or one search for a rate."""

    key: str
    """Names it for good: equal settings, files and program have equal keys, whatever sweep they are part of."""
    settings: Mapping[str, Value]
    """What the sweep sets, without defaults."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What shall be simulated. Names and values are those of ``sim.sweeps.settings``; text is read as a command line
    would be: ``"64"`` for a number is fine.

    ``vary`` may name several settings that vary together, ``"gpu+tensor_parallel_size": [("h200", 1), ("l4", 4)]``.
    A name or a value that no cell could have raises ``ConfigError`` here, before anything runs. A *combination* that
    cannot be (``admit_by="chunk"`` with the policy ``prefill_first``, say) is a cell that fails.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    """For all cells."""
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The values to try, by setting."""

    def __post_init__(self) -> None:
        fixed = [read_setting(name, value) for name, value in self.settings.items()]
        axes = [_read_axis(name, values) for name, values in self.vary.items()]
        varied = [name for axis, _ in axes for name in axis.split(TOGETHER)]
        for name, count in Counter([*varied, *(name for name, _ in fixed)]).items():
            if count > 1:
                raise ConfigError("vary" if name in varied else "settings", name, "a setting may be there once")
        object.__setattr__(self, "settings", dict(fixed))
        object.__setattr__(self, "vary", dict(axes))
        if (num_cells := math.prod(map(len, self.vary.values()))) > MAX_CELLS:
            raise ConfigError("vary", ",".join(self.vary), f"{num_cells:,} cells are too many, at most {MAX_CELLS:,}")
        self._refuse_what_no_cell_can_have()

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings that vary, in order."""
        return tuple(name for axis in self.vary for name in axis.split(TOGETHER))

    @property
    def names(self) -> tuple[str, ...]:
        """All settings that the sweep tells: those that vary first."""
        return (*self.varied, *self.settings)

    def cells(self) -> list[Cell]:
        """Every combination, the last setting varying fastest. Reads the files that cells need, for their keys.

        Raises ``ConfigError`` if two are the same.
        """
        digests = FileDigests()
        cells = [Cell(key=cell_key(settings, digests), settings=settings) for settings in self._combinations()]
        key, count = Counter(cell.key for cell in cells).most_common(1)[0]
        if count > 1:
            twice = next(cell for cell in cells if cell.key == key)
            told = ", ".join(f"{name}={twice.settings[name]}" for name in self.varied)
            raise ConfigError("vary", told, f"{count} cells come to the same settings")
        return cells

    def _combinations(self) -> Iterator[dict[str, Value]]:
        for values in product(*self.vary.values()):
            varied = chain.from_iterable(
                value if TOGETHER in axis else (value,) for axis, value in zip(self.vary, values, strict=True)
            )
            yield {**dict(zip(self.varied, varied, strict=True)), **self.settings}

    def _refuse_what_no_cell_can_have(self) -> None:
        """Raise the error of the first value with which no cell can be."""
        errors: dict[tuple[str, object], UserError] = {}
        possible: set[tuple[str, object]] = set()
        for settings in self._combinations():
            error = _error_of(settings)
            if error is None:
                possible.update(settings.items())
            else:
                for item in settings.items():
                    errors.setdefault(item, error)
        for value, reason in errors.items():
            if value not in possible:
                raise reason


def _error_of(settings: Mapping[str, Value]) -> UserError | None:
    """What is wrong with the settings, as far as it shows before anything is read."""
    try:
        model = check_settings(settings).config.model
        if model and not Path(model).is_dir():
            ModelSpec.preset(model)
    except UserError as error:
        return error
    return None


def _read_axis(name: str, values: object) -> tuple[str, tuple[Any, ...]]:
    """The values of one axis; of several names, tuples of them."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ConfigError("vary", name, "a list of one or more values is needed")
    names = name.split(TOGETHER)
    if len(names) == 1:
        read = [read_setting(name, value) for value in values]
        axis: tuple[Any, ...] = tuple(value for _, value in read)
    else:
        rows = [_read_together(name, names, value) for value in values]
        read, axis = rows[0], tuple(tuple(value for _, value in row) for row in rows)
    if len(set(axis)) < len(axis):
        raise ConfigError(name, next(value for value in axis if axis.count(value) > 1), "it is given twice")
    return TOGETHER.join(known for known, _ in read[: len(names)]), axis


def _read_together(axis: str, names: Sequence[str], value: object) -> list[tuple[str, Value]]:
    parts: Any = value.split(TOGETHER) if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) != len(names):
        raise ConfigError(axis, value, f"{len(names)} values are needed, one for each of the names")
    return [read_setting(name, part) for name, part in zip(names, parts, strict=True)]
