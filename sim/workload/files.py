"""Workload files: JSON Lines, one request a line, compressed if the name ends in ``.gz``."""

from __future__ import annotations

import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nanovllm.errors import ConfigError, WorkloadError
from nanovllm.limited_reading import read_lines
from nanovllm.trace.files.packed import open_for_reading, written_whole
from sim.workload.order import Order
from sim.workload.request import WorkloadRequest

FIELDS = tuple(field.name for field in msgspec.structs.fields(WorkloadRequest))
"""The fields that a line may have."""
_AT_ODDS = {"arrival": ["arrival_step"], "after": ["arrival_step"], "arrival_step": ["arrival", "after"]}
"""Fields that a workload does not have together: what comes by step comes at no time."""


def read_workload(path: str | Path, *, allow_text: bool = False) -> list[WorkloadRequest]:
    """All requests of a file in order of arrival, see ``in_order_of_arrival``.

    ``allow_text``: whoever runs it has a tokenizer. Raises ``WorkloadError`` naming file, line, field, value and
    what is allowed.
    """
    lines = sorted(_read_lines(path, allow_text), key=lambda line: line.moment)
    return [line.request for line in lines]


def iter_workload(path: str | Path, *, allow_text: bool = False) -> Iterator[WorkloadRequest]:
    """The requests one by one, for a file that need not fit into memory. It must be in order of arrival.

    Raises ``WorkloadError`` as ``read_workload`` does, when it gets to the line.
    """
    latest: _Line | None = None
    for line in _read_lines(path, allow_text):
        if latest is not None and line.moment < latest.moment:
            what = "waits for some that arrive" if line.request.after else "arrives"
            problem = (
                f"request {line.request.id!r} {what} before {latest.request.id!r}, but a streamed file must be sorted"
            )
            raise WorkloadError(path, problem, line.number)
        latest = line
        yield line.request


def write_workload(path: str | Path, requests: Iterable[WorkloadRequest]) -> None:
    """Write requests, at least one, as a file that ``read_workload`` gives back. The same requests give the same bytes.

    Raises ``WorkloadError`` if it cannot be written, and leaves what was there, as if ``requests`` raise something.
    """
    encode = msgspec.json.Encoder().encode
    lines = (encode(request) + b"\n" for request in requests)
    first = next(lines, None)
    if first is None:
        raise WorkloadError(path, "is not written: there is no request to write")
    try:
        with written_whole(path) as file:
            file.write(first)
            file.writelines(lines)
    except OSError as error:
        raise WorkloadError.unwritable(path, error) from error


# ---- reading -------------------------------------------------------------------------------------------------


def open_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, unpacked if its name ends in ``.gz``, with their numbers from 1; blank ones are left out.

    Raises ``WorkloadError`` for a file that cannot be read.
    """
    number = 0
    try:
        with open_for_reading(path) as file:
            for number, line in enumerate(read_lines(file), start=1):
                if number == 1:
                    line = line.removeprefix(BOM_UTF8)  # some editors and spreadsheets put one
                if not line.isspace():
                    yield number, line
    except FileNotFoundError:
        raise WorkloadError(path, "there is no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        if (reason := getattr(error, "strerror", None)) is not None:
            raise WorkloadError(path, f"cannot be read: {reason}") from None
        # A .gz file that is none, is cut short, or is damaged.
        raise WorkloadError(path, f"cannot be read: {error}", number + 1) from None


class _Line(NamedTuple):
    number: int
    request: WorkloadRequest
    moment: float
    """See ``Order``."""


def _read_lines(path: str | Path, allow_text: bool) -> Iterator[_Line]:
    lines_by_id: dict[str, int] = {}
    arrivals: dict[str, int] = {}
    order = Order()
    for line, data in open_lines(path):
        request = _parse(path, line, data)
        first = lines_by_id.setdefault(str(request.id), line)
        if first != line:
            raise WorkloadError(path, f"id={request.id!r} is not allowed: line {first} has it already", line)
        if request.text is not None and not allow_text:
            raise WorkloadError(path, "text is not allowed: without a tokenizer, give prompt or prompt_len", line)
        _check_one_kind_of_arrival(path, line, request, arrivals)
        try:
            moment = order.moment(request)
        except ConfigError as error:
            raise WorkloadError(path, str(error), line) from None
        yield _Line(line, request, moment)
    if not lines_by_id:
        raise WorkloadError(path, "holds no request: one JSON object a line is needed")


def _check_one_kind_of_arrival(path: str | Path, line: int, request: WorkloadRequest, first: dict[str, int]) -> None:
    """``first``: which line was the first with each of the three fields."""
    for name, others in _AT_ODDS.items():
        value = getattr(request, name)
        if value not in (None, ()):
            first.setdefault(name, line)
            for other in filter(first.__contains__, others):
                allowed = f"line {first[other]} has {other}, and a workload has one or the other"
                raise WorkloadError(path, str(ConfigError(name, value, allowed)), line)


def parse_json(path: str | Path, line: int, data: bytes) -> dict[str, Any]:
    """The JSON object of one line. Raises ``WorkloadError`` for anything else.

    ``NaN`` and ``Infinity``, which many programs write, are read as numbers: who needs the field refuses it by name.
    """
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            fields = json.loads(data.decode())
        except (ValueError, RecursionError):
            raise WorkloadError(path, f"is not JSON ({error})", line) from None
    if not isinstance(fields, dict):
        raise WorkloadError(path, f"holds a {type(fields).__name__}: a JSON object is needed", line)
    return fields


def _parse(path: str | Path, line: int, data: bytes) -> WorkloadRequest:
    fields = parse_json(path, line, data)
    for name, value in fields.items():
        if name not in FIELDS:
            allowed = f"there is no such field; the fields are {', '.join(FIELDS)}"
            raise WorkloadError(path, str(ConfigError(name, value, allowed)), line)
    for name in ("id", "max_tokens"):
        if name not in fields:
            raise WorkloadError(path, f"{name} is missing: every request needs it", line)
    try:
        return WorkloadRequest(**fields)
    except ConfigError as error:
        raise WorkloadError(path, str(error), line) from None
