"""Columns: many values of one kind as few bytes, and back.

Each function that packs raises ``TypeError``, ``ValueError`` or ``OverflowError`` for values that do not fit its kind;
each that unpacks raises ``ValueError`` for bytes that are none of its columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_HASH_DIGITS = 16
_SAMPLE = 1024
"""So many values decide whether a column is told by its differences."""
_IS_DELTA, _IS_SIGNED = 1, 2
_HEAD_BYTES = 6
"""Number of values (4), flags, bytes a value."""

Int64s = npt.NDArray[np.int64]


class Coding(NamedTuple):
    """How the values of a field become bytes, and back."""

    pack: Callable[[Sequence[Any]], bytes]
    unpack: Callable[[bytes], list[Any]]


# ---- whole numbers -------------------------------------------------------------------------------------------


def pack_ints(values: Sequence[int]) -> bytes:
    """Whole numbers of 64 bits: themselves or their differences, whichever are smaller, in no more bytes than the
    largest needs; first the lowest byte of all, then the next of all ..."""
    return _pack_int64s(np.frombuffer(array("q", values), np.int64))


def unpack_ints(data: bytes) -> list[int]:
    """What ``pack_ints`` was given."""
    numbers: list[int] = _unpack_int64s(data).tolist()
    return numbers


def unpack_counts(data: bytes) -> list[int]:
    """What ``pack_ints`` was given, if it was counts or indices."""
    numbers = _unpack_int64s(data)
    if len(numbers) and numbers.min() < 0:
        raise ValueError("a count or an index below 0")
    counts: list[int] = numbers.tolist()
    return counts


def _pack_int64s(numbers: Int64s) -> bytes:
    differences = np.diff(numbers, prepend=np.int64(0))  # wraps around, as adding them up does
    flags = 0
    if _num_bits(differences[:_SAMPLE]) < _num_bits(numbers[:_SAMPLE]):
        numbers, flags = differences, _IS_DELTA
    if len(numbers) and numbers.min() < 0:
        numbers, flags = _zigzag(numbers), flags | _IS_SIGNED
    unsigned = numbers.view(np.uint64)
    largest = int(unsigned.max()) if len(unsigned) else 0
    width = next(width for width in (1, 2, 4, 8) if largest >> 8 * width == 0)
    planes: bytes = unsigned.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T.tobytes()
    return len(numbers).to_bytes(4, "little") + bytes((flags, width)) + planes


def _unpack_int64s(data: bytes) -> Int64s:
    if len(data) < _HEAD_BYTES:
        raise ValueError("a column without its head")
    count, flags, width = int.from_bytes(data[:4], "little"), data[4], data[5]
    if width not in (1, 2, 4, 8) or len(data) != _HEAD_BYTES + count * width:
        raise ValueError("a column of another length than it tells")
    planes = np.frombuffer(data, np.uint8, offset=_HEAD_BYTES).reshape(width, count)
    unsigned = np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(count).astype(np.uint64)
    numbers = unsigned.view(np.int64)
    if flags & _IS_SIGNED:
        numbers = (unsigned >> np.uint64(1)).view(np.int64) ^ -(numbers & 1)
    return np.cumsum(numbers) if flags & _IS_DELTA else numbers


def _num_bits(numbers: Int64s) -> int:
    """About how many bits tell these numbers apart from 0."""
    return int(np.frexp(np.abs(numbers.astype(np.float64)))[1].sum())


def _zigzag(numbers: Int64s) -> Int64s:
    """0, -1, 1, -2 ... as 0, 1, 2, 3 ..."""
    return (numbers << 1) ^ (numbers >> 63)


# ---- floats --------------------------------------------------------------------------------------------------


def pack_floats(values: Sequence[float]) -> bytes:
    """The bits of the numbers as whole numbers."""
    return _pack_int64s(np.frombuffer(array("d", values), np.int64))


def unpack_floats(data: bytes) -> list[float]:
    """What ``pack_floats`` was given."""
    floats: list[float] = _unpack_int64s(data).view(np.float64).tolist()
    return floats


def pack_optional_floats(values: Sequence[float | None]) -> bytes:
    """Which there are, then those."""
    there = pack_ints([value is not None for value in values])
    return _frame(there) + pack_floats([value for value in values if value is not None])


def unpack_optional_floats(data: bytes) -> list[float | None]:
    """What ``pack_optional_floats`` was given."""
    there, rest = _unframe(data)
    is_there, floats = unpack_ints(there), unpack_floats(rest)
    if sum(is_there) != len(floats):
        raise ValueError("more or fewer numbers than the column tells")
    rest_of_floats = iter(floats)
    return [next(rest_of_floats) if known else None for known in is_there]


# ---- hashes, lists -------------------------------------------------------------------------------------------


def pack_hashes(values: Sequence[str]) -> bytes:
    """16 hex digits each, as 8 bytes."""
    digits = "".join(values)
    data = bytes.fromhex(digits)
    if data.hex() != digits or not {_HASH_DIGITS}.issuperset(map(len, values)):
        raise ValueError("a hash is 16 hex digits, in lower case")
    return data


def unpack_hashes(data: bytes) -> list[str]:
    """What ``pack_hashes`` was given."""
    digits = data.hex()
    if len(digits) % _HASH_DIGITS:
        raise ValueError("hashes of another length")
    return [digits[start : start + _HASH_DIGITS] for start in range(0, len(digits), _HASH_DIGITS)]


def lists_of(inner: Coding) -> Coding:
    """Lists of what ``inner`` packs: their lengths, then all values in a row."""

    def pack(values: Sequence[Sequence[Any]]) -> bytes:
        return _frame(pack_ints([*map(len, values)])) + inner.pack([*chain.from_iterable(values)])

    def unpack(data: bytes) -> list[Any]:
        lengths, rest = _unframe(data)
        values = inner.unpack(rest)
        ends = [0, *accumulate(unpack_counts(lengths))]
        if ends[-1] != len(values):
            raise ValueError("lists of other lengths than the column tells")
        return [values[start:end] for start, end in pairwise(ends)]

    return Coding(pack, unpack)


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _unframe(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "little")
    if len(data) < end:
        raise ValueError("a column that ends too early")
    return data[4:end], data[end:]


WORD = Coding(pack_ints, unpack_counts)
"""Names and other words, by their number in the part's list of words."""
INT = Coding(pack_ints, unpack_ints)
LENGTH = Coding(lambda values: pack_ints([*map(len, values)]), unpack_counts)
"""Of lists, their lengths: what is in them is foreseen."""
FLOAT = Coding(pack_floats, unpack_floats)
OPTIONAL_FLOAT = Coding(pack_optional_floats, unpack_optional_floats)
HASH = Coding(pack_hashes, unpack_hashes)
WORDS, INTS, HASHES = lists_of(WORD), lists_of(INT), lists_of(HASH)
