"""Any workload a command may be given: a workload file, or a public trace in its own format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.checks import check_positive, check_whole_number
from nanovllm.errors import ConfigError

if TYPE_CHECKING:
    from sim.readers import Slice
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
    start_s: float = 0.0
    """Only what comes from so many seconds on."""
    end_s: float | None = None
    """Only what comes before so many seconds."""
    rate_scale: float = 1.0
    """2 lets the requests come twice as fast."""
    trace_max_tokens: int | None = None
    """Public traces only: what the scheduler is told as max_tokens of every request; the real length stays hidden
    from it. Without it, each request's max_tokens is its real length."""
    trace_seed: int = 0
    """Mooncake traces only: source of the tokens that stand for their hash_ids."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError("format", self.format, f"one of {', '.join(FORMATS)}")
        check_positive("rate_scale", self.rate_scale)
        check_whole_number("trace_seed", self.trace_seed, 0)
        _ = self.part  # refuses wrong values

    @property
    def part(self) -> Slice:
        """Which requests are kept."""
        from sim.readers import Slice

        return Slice(skip=self.skip, limit=self.limit, start_s=self.start_s, end_s=self.end_s)

    def format_of(self, path: Path) -> str:
        """One of ``FORMATS``, not auto. Raises ``WorkloadError``."""
        from sim.readers.any_format import detect_format

        return self.format if self.format != "auto" else detect_format(path)

    def read(self, path: Path, *, allow_text: bool = False) -> Iterable[WorkloadRequest]:
        """The requests in order of arrival. A public trace is read as it is needed, a workload file at once.

        ``allow_text``: whoever runs it has a tokenizer. Raises ``WorkloadError``, ``ConfigError``.
        """
        from sim.readers.any_format import read_requests

        return read_requests(
            path,
            format=self.format,
            skip=self.skip,
            limit=self.limit,
            start_s=self.start_s,
            end_s=self.end_s,
            rate_scale=self.rate_scale,
            trace_max_tokens=self.trace_max_tokens,
            trace_seed=self.trace_seed,
            allow_text=allow_text,
        )
