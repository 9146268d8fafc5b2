"""Binary files, gzip-compressed where the name ends in ``.gz``."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO, cast


def open_for_reading(path: str | Path) -> BinaryIO:
    """Open a file for reading its unpacked bytes. Raises ``OSError``; reading may raise ``EOFError`` for packed bytes
    that were cut, ``zlib.error`` for damaged ones."""
    return cast(BinaryIO, gzip.open(path, "rb")) if is_packed(path) else Path(path).open("rb")


def open_for_writing(path: str | Path) -> BinaryIO:
    """Open a file for bytes. The same ones make the same file, whatever its name is and whenever it is written.
    Raises ``OSError``."""
    file = Path(path).open("wb", buffering=1 << 16)  # noqa: SIM115 - whoever asked for it closes it
    return cast(BinaryIO, _PackedFile(file)) if is_packed(path) else file


def is_packed(path: str | Path) -> bool:
    """Whether a file of this name is compressed."""
    return Path(path).suffix == ".gz"


class _PackedFile(gzip.GzipFile):
    """Leaves name and time out of the header, and closes the file that it writes into."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        super().__init__(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._file.close()
