"""A sweep in a file: YAML with ``settings`` and ``vary``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nanovllm.errors import FileError, UserError
from nanovllm.limited_reading import read_whole
from sim.sweeps.sweep import TOGETHER, Sweep


class SweepFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What such a file may hold: what all cells have, and the values to try."""

    settings: dict[str, Any] = {}
    vary: dict[str, list[Any]] = {}


def read_sweep_file(
    path: str | Path, *, settings: Mapping[str, Any] | None = None, vary: Mapping[str, Any] | None = None
) -> Sweep:
    """The sweep that a file describes. ``settings`` and ``vary`` are added to it; they take the place of what the file
    says about the same names. Raises ``FileError`` that names the file."""
    found = _read(Path(path))
    settings, vary = settings or {}, vary or {}
    replaced = {name for axis in (*settings, *vary) for name in _names(axis)}

    def kept(section: Mapping[str, Any]) -> dict[str, Any]:
        return {axis: value for axis, value in section.items() if not replaced & _names(axis)}

    try:
        return Sweep(settings={**kept(found.settings), **settings}, vary={**kept(found.vary), **vary})
    except UserError as error:
        raise FileError(path, str(error)) from None


def _names(axis: str) -> set[str]:
    return set(axis.replace("-", "_").split(TOGETHER))


def _read(path: Path) -> SweepFile:
    try:
        data = read_whole(path)
    except OSError as error:
        raise FileError.unreadable(path, error) from None
    if not data.strip():
        raise FileError(path, "is empty: settings, vary or both are needed")
    try:
        found = msgspec.yaml.decode(data, type=SweepFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise FileError(path, f"does not describe a sweep, which has settings and vary ({problem})") from None
    whole = yaml.compose(data, Loader=yaml.SafeLoader)
    for section in (whole, *(section for _, section in whole.value)):
        _refuse_names_that_repeat(path, section)
    return found


def _refuse_names_that_repeat(path: Path, section: yaml.MappingNode) -> None:
    """Of a name that stands in a section twice, YAML keeps the last. Raises ``FileError``."""
    lines: dict[str, int] = {}
    for name, _ in section.value:
        line = name.start_mark.line + 1
        if name.value in lines:
            raise FileError(path, f"{name.value} stands there twice, on lines {lines[name.value]} and {line}")
        lines[name.value] = line
