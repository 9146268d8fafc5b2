"""Any workload a command may be given: a workload file, or a public trace in its own format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.cli.console import print_note

if TYPE_CHECKING:
    from sim.readers.any_format import Reading
    from sim.workload import WorkloadRequest

FORMATS = ("auto", "workload", "azure", "mooncake", "sharegpt")


@dataclass(frozen=True, kw_only=True)
class WorkloadInput:
    """How a file is read. Raises ``ConfigError``."""

    format: str = "auto"
    """One of ``FORMATS``. auto: told by the file's first line."""
    skip: int = 0
    """Leave out so many requests at the beginning; the first one kept arrives at 0."""
    limit: int | None = None
    """Take at most so many requests."""
    start_s: float = 0.0
    """Only what comes from so many seconds on; the first one kept arrives at 0."""
    end_s: float | None = None
    """Only what comes before so many seconds."""
    rate_scale: float = 1.0
    """2 lets the requests come twice as fast; those that wait for others keep their delays."""
    trace_max_tokens: int | None = None
    """Public traces only: what the scheduler is told as max_tokens of every request; the real length stays hidden
    from it. Without it, each request's max_tokens is its real length."""
    trace_seed: int = 0
    """Mooncake traces only: source of the tokens that stand for their hash_ids."""

    def __post_init__(self) -> None:
        _ = self.reading  # refuses wrong values

    @property
    def reading(self) -> Reading:
        """The same for the simulator, which commands load when they run."""
        from sim.readers.any_format import Reading

        return Reading(**vars(self))

    def read(self, path: Path, *, allow_text: bool = False) -> Iterable[WorkloadRequest]:
        """The requests in order of arrival, see ``Reading``."""
        return self.reading.read(path, allow_text=allow_text)

    def shows_answers(self, path: Path) -> bool:
        """Whether each request's ``max_tokens`` is the true length of its answer: a public trace, read as it is. Raises
        ``WorkloadError``."""
        return self.trace_max_tokens is None and self.reading.format_of(path) != "workload"


def print_answers_shown() -> None:
    """A note for whoever decides by ``max_tokens`` where ``WorkloadInput.shows_answers``."""
    print_note("max_tokens are the true answer lengths, which no server knows: --trace-max-tokens N hides them")
