"""What all readers of public traces share: slices, arrivals, lengths, and errors with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nanovllm.checks import MAX_WHOLE_NUMBER, check_positive, check_whole_number, whole_number_from
from nanovllm.errors import ConfigError, WorkloadError
from sim.readers.slices import Slice, cut
from sim.workload import WorkloadRequest
from sim.workload.files import open_lines, parse_json


class TracedRequest(NamedTuple):
    """What traces have in common. ``prompt()`` makes the fields of a ``WorkloadRequest`` that tell the prompt."""

    line: int
    time_ns: int
    num_output_tokens: int
    prompt: Callable[[], dict[str, Any]]


def to_workload(
    path: str | Path, traced: Iterable[TracedRequest], part: Slice, *, rate_scale: float, max_tokens: int | None
) -> Iterator[WorkloadRequest]:
    """The requests of a part of a trace, with their place in the trace as id, see ``sim.readers``. Prompts are made of
    those only that are kept. Raises ``ConfigError`` for options, ``WorkloadError`` for what is wrong in the file."""
    if max_tokens is not None:
        check_whole_number("max_tokens", max_tokens, 1)
    check_positive("rate_scale", rate_scale)
    return _to_workload(path, cut(part, path, traced), rate_scale, max_tokens)


def _to_workload(
    path: str | Path, traced: Iterable[tuple[int, TracedRequest]], rate_scale: float, max_tokens: int | None
) -> Iterator[WorkloadRequest]:
    first_ns: int | None = None
    for number, request in traced:
        first_ns = request.time_ns if first_ns is None else first_ns
        num_output_tokens = max(1, request.num_output_tokens)  # the first token is sampled whatever comes
        try:
            yield WorkloadRequest(
                id=number,
                max_tokens=max_tokens or num_output_tokens,
                output_len=min(num_output_tokens, max_tokens) if max_tokens else None,
                arrival=(request.time_ns - first_ns) / 1e9 / rate_scale,
                **request.prompt(),
            )
        except ConfigError as error:
            raise WorkloadError(path, str(error), request.line) from None


def json_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file with their line numbers. Raises ``WorkloadError``, also if there are none."""
    line = 0
    for line, data in open_lines(path):
        yield line, parse_json(path, line, data)
    if not line:
        raise WorkloadError(path, "holds no request: one JSON object a line is needed")


def whole_number(
    path: str | Path, line: int, fields: Mapping[str, Any], name: str, low: int = 0, high: int = MAX_WHOLE_NUMBER
) -> int:
    """The field ``name``, a whole number from ``low`` to ``high``. Raises ``WorkloadError``."""
    if name not in fields:
        raise wrong_field(path, line, fields, name, whole_number_from(low))
    try:
        check_whole_number(name, fields[name], low, high)
    except ConfigError as error:
        raise WorkloadError(path, str(error), line) from None
    return int(fields[name])


def wrong_field(path: str | Path, line: int, fields: Mapping[str, Any], name: str, allowed: str) -> WorkloadError:
    """The error for a field that is missing or has a value that is not allowed."""
    if name not in fields:
        return WorkloadError(path, f"{name} is missing: {allowed} is needed", line)
    return WorkloadError(path, str(ConfigError(name, fields[name], allowed)), line)
