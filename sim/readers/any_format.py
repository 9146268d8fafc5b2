"""Any file of requests: a workload file, or a public trace in its own format."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec

from nanovllm.errors import ConfigError, WorkloadError
from sim.readers import READERS
from sim.workload import WorkloadRequest, read_workload
from sim.workload.files import open_lines, parse_json

FORMATS = ("auto", "workload", *READERS)
"""auto: told by the file's first line."""
_MARKS = {"hash_ids": "mooncake", "input_tok_ids": "sharegpt"}
"""Fields that tell a format."""


def read_requests(
    path: Path,
    *,
    format: str = "auto",
    skip: int = 0,
    limit: int | None = None,
    rate_scale: float = 1.0,
    trace_max_tokens: int | None = None,
    allow_text: bool = False,
) -> Iterable[WorkloadRequest]:
    """The requests in order of arrival. A public trace is read as it is needed, a workload file at once.

    ``format``: one of ``FORMATS``. ``skip``, ``limit``, ``rate_scale`` and, for a public trace only,
    ``trace_max_tokens``: see ``sim.readers``. ``allow_text``: whoever runs it has a tokenizer. Raises
    ``WorkloadError``, ``ConfigError``.
    """
    name = format if format != "auto" else detect_format(path)
    if name != "workload":
        return READERS[name](path, skip=skip, limit=limit, rate_scale=rate_scale, max_tokens=trace_max_tokens)
    if trace_max_tokens is not None:
        raise ConfigError("trace_max_tokens", trace_max_tokens, "only for a public trace: this is a workload")
    requests = list(islice(read_workload(path, allow_text=allow_text)[skip:], limit))
    return requests if rate_scale == 1.0 else [_sooner(request, rate_scale) for request in requests]


def detect_format(path: Path) -> str:
    """The format of a file by its first line. A file that is none of the public traces is taken for a workload."""
    number, line = next(open_lines(path), (0, b""))
    if line.startswith(b"TIMESTAMP,"):
        return "azure"
    try:
        fields = parse_json(path, number, line)
    except WorkloadError:
        return "workload"
    return next((name for mark, name in _MARKS.items() if mark in fields), "workload")


def _sooner(request: WorkloadRequest, rate_scale: float) -> WorkloadRequest:
    if request.arrival is None:
        return request
    return msgspec.structs.replace(request, arrival=request.arrival / rate_scale)
