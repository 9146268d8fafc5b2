"""Names for cells that last: the same settings, files and program have the same name, on any machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from nanovllm.errors import UserError
from nanovllm.own_classes import is_class_name, source_file
from sim.calibration import calibration_file
from sim.sweeps.program import program_digest
from sim.sweeps.settings import CellSettings, Value, check_settings


class FileDigests:
    """Digests of the files that cells read, each read once. A file that is not there has a digest, too."""

    def __init__(self) -> None:
        self._by_path: dict[str, str] = {}

    def of(self, path: str) -> str:
        """A number for all that the file holds; for a directory, for the files in it that matter."""
        if path not in self._by_path:
            self._by_path[path] = _digest(Path(path))
        return self._by_path[path]


def cell_key(settings: Mapping[str, Value], digests: FileDigests) -> str:
    """The key of the cell with these settings. A default that is spelled out makes no other key, nor does their order
    or the name of a file; a change in the program's own sources does. (Settings that cannot be together have a key of
    what is told.)"""
    try:
        content = _canonical(check_settings(settings), digests)
    except UserError:
        content = dict(settings)
    whole = {"program": program_digest(), "cell": content}
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(whole, order="sorted"))[:16]


def _canonical(cell: CellSettings, digests: FileDigests) -> dict[str, Any]:
    content: dict[str, Any] = {
        "config": msgspec.to_builtins(cell.config),
        "deployment": msgspec.to_builtins(cell.deployment),
        "load": {**msgspec.to_builtins(cell.load), "kind": type(cell.load).__name__},
        "slo": msgspec.to_builtins(cell.slo),
        "search": msgspec.to_builtins(cell.search),
    }
    if cell.deployment.calibration:
        content["deployment"]["calibration"] = str(calibration_file(cell.deployment.calibration))
    for part, name in (("deployment", "table"), ("deployment", "calibration"), ("load", "workload")):
        if content[part].get(name):
            content[part][name] = digests.of(content[part][name])
    if cell.config.model and Path(cell.config.model).is_dir():
        content["config"]["model"] = digests.of(cell.config.model)
    for part, name in (("config", "policy"), ("deployment", "router")):
        if is_class_name(content[part][name]) and (source := source_file(content[part][name])) is not None:
            content[part][name] += f" {digests.of(source)}"
    return content


def _digest(path: Path) -> str:
    hashed = xxhash.xxh3_128()
    files = sorted([*path.glob("table_*"), *path.glob("config.json")]) if path.is_dir() else [path]
    for file in files:
        hashed.update(file.name.encode() if path.is_dir() else b"")
        for piece in _pieces(file):
            hashed.update(piece)
    return hashed.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    if path.is_char_device():  # there may be no end to it; the cell tells what is wrong with it
        return
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                yield piece
    except OSError as error:
        yield f"{path} cannot be read: {error.strerror}".encode()
