"""Any workload a command may be given: a workload file, or a public trace in its own format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.checks import check_positive, check_whole_number
from nanovllm.errors import ConfigError, WorkloadError

if TYPE_CHECKING:
    from sim.workload import WorkloadRequest

FORMATS = ("auto", "workload", "azure", "mooncake", "sharegpt")


@dataclass(frozen=True, kw_only=True)
class WorkloadInput:
    """How a file is read. Raises ``ConfigError``."""

    format: str = "auto"
    """One of ``FORMATS``. auto: told by the file's first line."""
    skip: int = 0
    """Leave out so many requests at the beginning."""
    limit: int | None = None
    """Take at most so many requests."""
    rate_scale: float = 1.0
    """2 lets the requests come twice as fast."""
    trace_max_tokens: int | None = None
    """Public traces only: what the scheduler is told as max_tokens of every request; the real length stays hidden
    from it. Without it, each request's max_tokens is its real length."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError("format", self.format, f"one of {', '.join(FORMATS)}")
        check_whole_number("skip", self.skip, 0)
        if self.limit is not None:
            check_whole_number("limit", self.limit, 1)
        check_positive("rate_scale", self.rate_scale)

    def read(self, path: Path, *, allow_text: bool = False) -> Iterable[WorkloadRequest]:
        """The requests in order of arrival. A public trace is read as it is needed, a workload file at once.

        ``allow_text``: whoever runs it has a tokenizer. Raises ``WorkloadError``, ``ConfigError``.
        """
        from sim.readers import READERS

        name = self.format if self.format != "auto" else detect_format(path)
        if name == "workload":
            return self._read_workload(path, allow_text)
        return READERS[name](
            path,
            skip=self.skip,
            limit=self.limit,
            rate_scale=self.rate_scale,
            max_tokens=self.trace_max_tokens,
        )

    def _read_workload(self, path: Path, allow_text: bool) -> list[WorkloadRequest]:
        import msgspec

        from sim.workload import read_workload

        if self.trace_max_tokens is not None:
            raise ConfigError("trace_max_tokens", self.trace_max_tokens, "only for a public trace: this is a workload")
        requests = list(islice(read_workload(path, allow_text=allow_text)[self.skip :], self.limit))
        if self.rate_scale == 1.0:
            return requests
        return [
            request
            if request.arrival is None
            else msgspec.structs.replace(request, arrival=request.arrival / self.rate_scale)
            for request in requests
        ]


def detect_format(path: Path) -> str:
    """The format of a file by its first line. A file that is none of the public traces is taken for a workload."""
    from sim.workload.files import open_lines, parse_json

    number, line = next(open_lines(path), (0, b""))
    if line.startswith(b"TIMESTAMP,"):
        return "azure"
    try:
        fields = parse_json(path, number, line)
    except WorkloadError:
        return "workload"
    marks = {"hash_ids": "mooncake", "input_tok_ids": "sharegpt"}
    return next((name for mark, name in marks.items() if mark in fields), "workload")
