"""Any file of requests: a workload file, or a public trace in its own format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from nanovllm.checks import check_positive, check_whole_number
from nanovllm.errors import ConfigError, WorkloadError
from nanovllm.trace.events import RequestId
from sim.readers import READERS, Slice
from sim.workload import WorkloadRequest, read_workload
from sim.workload.files import open_lines, parse_json

FORMATS = ("auto", "workload", *READERS)
"""auto: told by the file's first line."""
_MARKS = {
    **dict.fromkeys(("timestamp", "input_length", "output_length", "hash_ids"), "mooncake"),
    **dict.fromkeys(("arrival_time_ns", "input_tok_ids", "input_toks", "output_toks"), "sharegpt"),
}
"""Fields that tell a format, even where others are missing."""


@dataclass(frozen=True, kw_only=True)
class Reading(Slice):
    """How a file is read, and which of its requests are kept: see ``sim.readers``. Raises ``ConfigError``."""

    format: str = "auto"
    """One of ``FORMATS``."""
    rate_scale: float = 1.0
    trace_max_tokens: int | None = None
    """For a public trace only."""
    trace_seed: int = 0
    """What tokens are drawn from where a trace tells only which are equal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in FORMATS:
            raise ConfigError("format", self.format, f"one of {', '.join(FORMATS)}")
        check_positive("rate_scale", self.rate_scale)
        if self.trace_max_tokens is not None:
            check_whole_number("trace_max_tokens", self.trace_max_tokens, 1)
        check_whole_number("trace_seed", self.trace_seed, 0)

    def format_of(self, path: Path) -> str:
        """One of ``FORMATS``, not auto. Raises ``WorkloadError``."""
        return self.format if self.format != "auto" else detect_format(path)

    def read(self, path: Path, *, allow_text: bool = False) -> Iterable[WorkloadRequest]:
        """The requests in order of arrival. A public trace is read as it is needed, a workload file at once.

        ``allow_text``: whoever runs it has a tokenizer. Raises ``WorkloadError``, ``ConfigError``.
        """
        name, max_tokens = self.format_of(path), self.trace_max_tokens
        if name == "workload":
            if max_tokens is not None:
                raise ConfigError("trace_max_tokens", max_tokens, "only for a public trace: this is a workload")
            kept = _part_of(read_workload(path, allow_text=allow_text), self, self.rate_scale)
            if not kept:
                raise _nothing_left(path)
            return kept
        part = {field: getattr(self, field) for field in ("skip", "limit", "start_s", "end_s")}
        seed = {"seed": self.trace_seed} if name == "mooncake" else {}
        requests = READERS[name](path, **part, rate_scale=self.rate_scale, max_tokens=max_tokens, **seed)
        return _at_least_one(path, requests)


def _at_least_one(path: Path, requests: Iterable[WorkloadRequest]) -> Iterator[WorkloadRequest]:
    rest = iter(requests)
    first = next(rest, None)
    if first is None:
        raise _nothing_left(path)
    yield first
    yield from rest


def _nothing_left(path: Path) -> WorkloadError:
    return WorkloadError(path, "holds no request in the part that is asked for: skip, limit and times leave none")


def _part_of(requests: list[WorkloadRequest], part: Slice, rate_scale: float) -> list[WorkloadRequest]:
    """Requests that come in the span of time, and faster. Where a beginning is left out, the first one kept arrives at
    0, as the first of a public trace does. What waits for others is where they are: left out if one of them is. How
    long after them it comes is not the workload's rate, and stays."""
    if part.start_s or part.end_s is not None:
        if requests[0].arrival_step is not None:
            option = "start_s" if part.start_s else "end_s"
            raise ConfigError(option, getattr(part, option), "only for arrivals in seconds: these come by step")
        in_span = (request for request in requests if request.after or part.has(request.arrival or 0.0))
        requests = list(_with_all_awaited(in_span))
    requests = list(islice(_with_all_awaited(requests[part.skip :]), part.limit))
    if requests and (part.start_s or part.skip):
        requests = _from_the_start(requests)
    return requests if rate_scale == 1.0 else [_sped_up(request, rate_scale) for request in requests]


def _with_all_awaited(requests: Iterable[WorkloadRequest]) -> Iterator[WorkloadRequest]:
    kept: set[RequestId] = set()
    for request in requests:
        if kept.issuperset(request.after):
            kept.add(request.id)
            yield request


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


def _from_the_start(requests: list[WorkloadRequest]) -> list[WorkloadRequest]:
    """The same requests, the first of them at 0 (it waits for nobody: whom it waits for would come before it)."""
    first, replace = requests[0], msgspec.structs.replace

    def moved(request: WorkloadRequest) -> WorkloadRequest:
        if request.arrival_step is not None:
            return replace(request, arrival_step=request.arrival_step - (first.arrival_step or 0))
        if request.after:
            return request
        return replace(request, arrival=(request.arrival or 0.0) - (first.arrival or 0.0))

    return [moved(request) for request in requests]


def _sped_up(request: WorkloadRequest, rate_scale: float) -> WorkloadRequest:
    if request.arrival is None:
        return request
    return msgspec.structs.replace(request, arrival=request.arrival / rate_scale)
