"""Rows as Parquet: a column a setting, a column a figure, each of one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanovllm.errors import FileError
from nanovllm.trace.packed import written_whole
from sim.sweeps.figures import FIGURES
from sim.sweeps.row import WALL, Row
from sim.sweeps.settings import column_type

if TYPE_CHECKING:
    import pyarrow


def columns_of(names: Sequence[str]) -> dict[str, type]:
    """The columns of a sweep that sets these names, in order, with their types."""
    settings = {name: column_type(name) for name in names}
    return {"cell": str, **settings, "status": str, "error": str, **FIGURES, WALL: float}


def to_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pyarrow.Table:
    """Rows as an arrow table; ``names``: of the settings."""
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    columns = columns_of(names)
    schema = pyarrow.schema([(name, arrow_types[kind]) for name, kind in columns.items()])
    return pyarrow.Table.from_pylist(list(rows), schema=schema)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write a Parquet file, whole or not at all. The same rows make the same file. Raises ``FileError``."""
    import pyarrow.parquet

    table = to_table(rows, names)
    try:
        with written_whole(path) as file:
            pyarrow.parquet.write_table(table, file, compression="zstd")
    except OSError as error:
        raise FileError.unwritable(path, error) from error


def read_rows(path: Path) -> list[Row]:
    """The rows of a Parquet file. Raises ``FileError`` for one that cannot be read."""
    import pyarrow
    import pyarrow.parquet

    try:
        with path.open("rb") as file:
            rows: list[Row] = pyarrow.parquet.read_table(file).to_pylist()
    except pyarrow.ArrowException as error:
        raise FileError(path, f"is no Parquet file that can be read ({error})") from None
    except OSError as error:
        raise FileError.unreadable(path, error) from None
    return rows
