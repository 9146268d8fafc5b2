"""Binary files, gzip-compressed where the name ends in ``.gz``."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from nanovllm.errors import TraceError


def open_for_reading(path: str | Path) -> BinaryIO:
    """Open a file for reading its unpacked bytes. Raises ``OSError``; reading may raise ``EOFError`` for packed bytes
    that were cut, ``zlib.error`` for damaged ones."""
    return cast(BinaryIO, gzip.open(path, "rb")) if is_packed(path) else Path(path).open("rb")


def open_for_writing(path: str | Path) -> BinaryIO:
    """Open a file for bytes. The same ones make the same file, whatever its name is and whenever it is written.
    Raises ``OSError``."""
    return start_writing(open_untouched(path), path)


def open_untouched(path: str | Path) -> BinaryIO:
    """Open a file for ``start_writing``, and leave what is in it until then. Raises ``OSError``."""

    def open_without_emptying(name: str, flags: int) -> int:
        return os.open(name, flags & ~os.O_TRUNC, 0o666)

    return open(path, "wb", buffering=1 << 16, opener=open_without_emptying)


def start_writing(file: BinaryIO, path: str | Path) -> BinaryIO:
    """Empty a file that ``open_untouched`` has opened; what it returns is written to. Raises ``OSError``."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.truncate()
    return cast(BinaryIO, _PackedFile(file)) if is_packed(path) else file


def check_writable(path: str | Path) -> None:
    """Raise ``TraceError`` if ``path`` cannot be written, and leave what is there as it is."""
    existed = Path(path).exists()
    try:
        open_untouched(path).close()
    except OSError as error:
        raise TraceError.unwritable(path, error) from None
    if not existed:
        Path(path).unlink()


@contextmanager
def written_whole(path: str | Path) -> Iterator[BinaryIO]:
    """A file for bytes that takes its place at ``path`` when the block ends. If it is left by an exception, what was
    there stays. (What is no file, a pipe say, gets the bytes as they come.) Raises ``OSError``."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if target.exists() and not target.is_file():
        with open_for_writing(target) as file:
            yield file
        return
    scratch = target.with_name(f".{os.getpid()}-{target.name}")
    try:
        with open_for_writing(scratch) as file:
            yield file
        if target.exists():
            shutil.copymode(target, scratch)
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def is_packed(path: str | Path) -> bool:
    """Whether a file of this name is compressed."""
    return Path(path).suffix == ".gz"


def is_compact(path: str | Path) -> bool:
    """Whether a trace of this name has the form of ``compact``."""
    return Path(path).suffix == ".nvtrace"


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
