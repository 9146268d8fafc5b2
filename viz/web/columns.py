"""Integer columns in few bytes: differences as variable-length numbers, compressed, as text for a page.

A table is a set of named columns. Neighbours in a column are alike, so of each number only the difference to the one
before it is kept, folded to be positive (zigzag: 0, -1, 1, -2 ... become 0, 1, 2, 3 ...), in groups of seven bits, the
lowest first, each byte but the last with its high bit set (LEB128). ``decode.js`` is the other direction.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nanovllm.errors import UserError

LARGEST = 2**51

_MAX_GROUPS = 10  # 64 bits in groups of 7
_COMPRESSION_LEVEL = 6


def pack(columns: Mapping[str, ArrayLike]) -> dict[str, Any]:
    """The columns as ``{"layout": [[name, kind, length], ...], "bytes": base64 of zlib of all their varints}``.

    ``kind`` is the narrowest of ``u8``, ``i32`` and ``f64`` that a reader needs. Raises ``UserError`` for numbers
    beyond ``LARGEST``.
    """
    arrays = {name: np.asarray(values, dtype=np.int64) for name, values in columns.items()}
    layout = [[name, _kind(name, array), int(array.size)] for name, array in arrays.items()]
    stream = b"".join(_varints(array) for array in arrays.values())
    return {"layout": layout, "bytes": base64.b64encode(zlib.compress(stream, _COMPRESSION_LEVEL)).decode("ascii")}


def too_large(number: object) -> str:
    """What is told of a number that no page can show."""
    return f"{number} is too large to be shown, numbers go up to {LARGEST}"


def _kind(name: str, array: NDArray[np.int64]) -> str:
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if max(-low, high) > LARGEST:  # folded, its difference to another would not be exact in JavaScript
        raise UserError(f"{name}: {too_large(max(-low, high))}")
    if low >= 0 and high < 2**8:
        return "u8"
    return "i32" if max(-low, high) < 2**31 else "f64"


def _varints(values: NDArray[np.int64]) -> bytes:
    if not values.size:
        return b""
    differences = np.diff(values, prepend=np.int64(0))
    folded = ((differences << 1) ^ (differences >> 63)).astype(np.uint64)
    thresholds = np.uint64(1) << (np.uint64(7) * np.arange(1, _MAX_GROUPS, dtype=np.uint64))
    num_groups = 1 + np.searchsorted(thresholds, folded, side="right")
    starts = np.cumsum(num_groups) - num_groups
    stream = np.zeros(int(num_groups.sum()), dtype=np.uint8)
    for group in range(int(num_groups.max())):
        has_group = num_groups > group
        bits = (folded[has_group] >> np.uint64(7 * group)) & np.uint64(0x7F)
        more = (num_groups[has_group] > group + 1).astype(np.uint64) << np.uint64(7)
        stream[starts[has_group] + group] = (bits | more).astype(np.uint8)
    return stream.tobytes()
