"""Where a sweep keeps its rows, so that it can be killed at any moment and go on later.

A store is a directory. ``sweep.json`` says what sweep it is of. A cell that has been computed is a file of its own in
``parts``, written under another name and renamed, so that it is there as a whole or not at all. When all cells are
there, they become the one file ``results.parquet``, and the parts go. A sweep with more values finds the rows of the
smaller one, and the store is its own from then on. What else a killed process leaves behind has a name with a dot in
front, is never read, and goes when the store is opened again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from nanovllm.errors import FileError, UserError
from nanovllm.limited_reading import read_whole
from nanovllm.trace.files.packed import written_whole
from nanovllm.version import __version__
from sim.sweeps.row import Row
from sim.sweeps.sweep import Sweep
from sim.sweeps.table import read_rows, write_rows

RESULTS = "results.parquet"
_MANIFEST, _PARTS, _LOCK = "sweep.json", "parts", ".lock"


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``sweep.json`` holds."""

    kind: Literal["nanovllm sweep"] = "nanovllm sweep"
    schema: Literal[1] = 1
    version: str = __version__
    """Of the program that wrote this."""
    settings: dict[str, Any]
    vary: dict[str, list[Any]]

    @classmethod
    def of(cls, sweep: Sweep) -> Manifest:
        """Describe a sweep."""
        return msgspec.convert(
            msgspec.to_builtins({"settings": sweep.settings, "vary": sweep.vary}, str_keys=True), type=cls
        )


class Store:
    """The rows of one sweep in a directory. Made by ``open_store``, which lets nobody else write."""

    def __init__(self, path: Path, sweep: Sweep) -> None:
        self.path = path
        self._names = sweep.names

    def rows(self, keys: Collection[str]) -> dict[str, Row]:
        """The rows that are there of the cells with these keys, by key. A part that cannot be read (the machine went
        down, say) counts as not there. Raises ``FileError`` for results that cannot be read."""
        results = self.path / RESULTS
        rows = read_rows(results, self._names, keys) if results.exists() else []
        for part in self._parts():
            with suppress(FileError):
                rows += read_rows(part, self._names, keys)
        return {row["cell"]: row for row in rows}

    def keep(self, row: Row) -> None:
        """Store the row of a cell. Raises ``FileError``."""
        write_rows(self._part(row["cell"]), [row], self._names)

    def finish(self, rows: Sequence[Row]) -> None:
        """All cells have been computed: put their rows into one file, in this order, and let all others go."""
        if not self._parts():
            return
        write_rows(self.path / RESULTS, rows, self._names)
        for part in self._parts():
            part.unlink()

    def clean(self) -> None:
        """Remove what a process that was killed had begun to write (see ``written_whole``), nothing of others."""
        for pattern in (f".[0-9]*-{_MANIFEST}", f".[0-9]*-{RESULTS}", f"{_PARTS}/.[0-9]*-*.parquet"):
            for path in self.path.glob(pattern):
                path.unlink()

    def _part(self, key: str) -> Path:
        return self.path / _PARTS / f"{key}.parquet"

    def _parts(self) -> list[Path]:
        return sorted(self._part("*").parent.glob("[!.]*.parquet"))


@contextmanager
def open_store(path: str | Path, sweep: Sweep) -> Iterator[Store]:
    """The store of a sweep, made if there is none. While the block runs, no other process can open it.

    Raises ``FileError`` if it holds another sweep (one with fewer values of the same settings becomes this one), cannot
    be written, or is open elsewhere.
    """
    import filelock

    directory = Path(path)
    _refuse_foreign(directory)
    try:
        (directory / _PARTS).mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(directory / _LOCK, timeout=0).acquire()
    except filelock.Timeout:
        raise FileError(directory, "another sweep is writing to it: wait for it, or choose another directory") from None
    except OSError as error:
        raise FileError.unwritable(directory, error) from None
    with held:
        store = Store(directory, sweep)
        store.clean()
        _claim(directory, sweep)
        yield store


def _refuse_foreign(directory: Path) -> None:
    """Nothing is left in a directory that holds something else. Raises ``FileError``."""
    if not directory.is_dir():
        return
    if (directory / _MANIFEST).exists():
        read_sweep(directory)
        return
    if any(path.name != _PARTS and not path.name.startswith(".") for path in directory.iterdir()):
        raise FileError(directory, "holds files, but no sweep: choose another directory")


def read_sweep(path: str | Path) -> Sweep:
    """The sweep that a store is of. Raises ``FileError``."""
    manifest = Path(path) / _MANIFEST
    try:
        found = msgspec.json.decode(read_whole(manifest), type=Manifest)
    except OSError as error:
        raise FileError.unreadable(manifest, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(manifest, f"does not describe a sweep ({error})") from None
    try:
        return Sweep(settings=found.settings, vary=found.vary)
    except UserError as error:
        raise FileError(manifest, str(error)) from None


def _claim(directory: Path, sweep: Sweep) -> None:
    """Write down whose store it is, or make sure that it is this sweep's, or that of a part of it."""
    manifest = directory / _MANIFEST
    if manifest.exists():
        there, here = _values(read_sweep(directory)), _values(sweep)
        if difference := _difference(there, here):
            raise FileError(directory, f"holds another sweep ({difference}): choose another directory")
        if all(len(there[name]) == len(here[name]) for name in there):
            return
    try:
        with written_whole(manifest) as file:
            file.write(msgspec.json.format(msgspec.json.encode(Manifest.of(sweep)), indent=2) + b"\n")
    except OSError as error:
        raise FileError.unwritable(manifest, error) from None


def _values(sweep: Sweep) -> dict[str, tuple[Any, ...]]:
    """What a sweep sets, each with its values: one that does not vary has a single one."""
    fixed = {name: (value,) for name, value in sweep.settings.items()}
    return {**fixed, **{name: tuple(values) for name, values in sweep.vary.items()}}


def _difference(there: Mapping[str, tuple[Any, ...]], here: Mapping[str, tuple[Any, ...]]) -> str | None:
    """The first thing that keeps one sweep from being a part of the other; the order of what they set is none."""
    for name in (*there, *here):
        old, new = there.get(name), here.get(name)
        if old is None or new is None:
            return f"{name} is {_told(old)} there, {_told(new)} here"
        if not set(old) <= set(new):
            more = ": all that are there are needed, and more may be added" if len(old) > 1 else ""
            return f"{name} is {_told(old)} there, {_told(new)} here{more}"
    return None


def _told(values: tuple[Any, ...] | None) -> str:
    return "not set" if values is None else ",".join(map(str, values))
