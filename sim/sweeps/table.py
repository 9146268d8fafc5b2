"""Rows as Parquet: a column a setting, a column a figure, each of one type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanovllm.errors import FileError
from nanovllm.trace.files.packed import written_whole
from sim.sweeps.figures import FIGURES
from sim.sweeps.row import WALL, Row
from sim.sweeps.settings import column_type

if TYPE_CHECKING:
    import pyarrow

_UNSIGNED = "seed"
"""The one whole number that may need all 64 bits."""


def columns_of(names: Sequence[str]) -> dict[str, type]:
    """The columns of a sweep that sets these names, in order, with their types."""
    settings = {name: column_type(name) for name in names}
    return {"cell": str, **settings, "status": str, "error": str, **FIGURES, WALL: float}


def to_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pyarrow.Table:
    """Rows as an arrow table; ``names``: of the settings."""
    import pyarrow

    return pyarrow.Table.from_pylist(list(rows), schema=_schema(names))


def _schema(names: Sequence[str]) -> pyarrow.Schema:
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    columns = {name: arrow_types[kind] for name, kind in columns_of(names).items()}
    if _UNSIGNED in columns:
        columns[_UNSIGNED] = pyarrow.uint64()
    return pyarrow.schema(list(columns.items()))


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write a Parquet file, whole or not at all. The same rows make the same file. Raises ``FileError``."""
    import pyarrow.parquet

    table = to_table(rows, names)
    try:
        with written_whole(path) as file:
            pyarrow.parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
    except OSError as error:
        raise FileError.unwritable(path, error) from error


def read_rows(path: Path, names: Sequence[str], keys: Collection[str]) -> list[Row]:
    """The rows of the cells with these keys that are in a Parquet file; ``names``: of the settings.

    Raises ``FileError`` for a file that cannot be read, or in which these rows are no rows of such a sweep.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError.unreadable(path, error) from None
    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data), page_checksum_verification=True)
        rows: list[Row] = table.to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise FileError(path, f"is no Parquet file that can be read ({problem})") from None
    if "cell" not in table.column_names:
        raise FileError(path, "holds no rows of a sweep: the column cell is missing")
    rows = [row for row in rows if row["cell"] in keys]
    found = dict(zip(table.schema.names, table.schema.types, strict=True))
    for column in _schema(names):
        if rows and found.get(column.name) != column.type:
            problem = f"the column {column.name} is {found.get(column.name, 'missing')}, not {column.type}"
            raise FileError(path, f"holds no rows of this sweep: {problem}")
    return rows
