"""Reading no more of a file than memory can bear: ``/dev/zero`` has no end, and neither may what was downloaded.

What is too long is an ``OSError``, as all is for which a file cannot be read: readers tell it in the same way.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr

MAX_BYTES = 2**28
"""Of a line, or of a file that is read at once. The longest prompt that is drawn takes less than half of it."""
_PIECE_BYTES = 2**20


def read_lines(file: IO[AnyStr], first_number: int = 1) -> Iterator[AnyStr]:
    """The lines of an open file from here on. Raises ``OSError``, also for one of more than ``MAX_BYTES`` (of a text:
    characters); ``first_number``: of the first line, for its error."""
    number = first_number
    while line := file.readline(MAX_BYTES + 1):
        if len(line) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"line {number:,} has more than {MAX_BYTES:,} bytes")
        yield line
        number += 1


def read_whole(path: str | Path) -> bytes:
    """All that a file holds. Raises ``OSError``, also for more than ``MAX_BYTES``."""
    data = bytearray()
    with Path(path).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            data += piece
            if len(data) > MAX_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES:,} bytes")
    return bytes(data)
