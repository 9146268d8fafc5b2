"""A sweep in a file: YAML with ``settings`` and ``vary``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from nanovllm.errors import FileError, UserError
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
        data = path.read_bytes()
    except OSError as error:
        raise FileError.unreadable(path, error) from None
    if not data.strip():
        raise FileError(path, "is empty: settings, vary or both are needed")
    try:
        return msgspec.yaml.decode(data, type=SweepFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise FileError(path, f"does not describe a sweep, which has settings and vary ({problem})") from None
