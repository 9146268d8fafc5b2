"""The Azure LLM inference traces of 2023 and 2024: CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.

Source: https://github.com/Azure/AzurePublicDataset, published with Splitwise (Patel et al., 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from nanovllm.errors import WorkloadError
from sim.readers.common import TracedRequest, to_workload, whole_number, wrong_field
from sim.workload import WorkloadRequest
from sim.workload.files import open_lines

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure(
    path: str | Path,
    *,
    skip: int = 0,
    limit: int | None = None,
    rate_scale: float = 1.0,
    max_tokens: int | None = None,
) -> Iterator[WorkloadRequest]:
    """The requests of a trace, see ``sim.readers``; prompts by length, since the trace keeps no content."""
    return to_workload(path, _rows(path), skip=skip, limit=limit, rate_scale=rate_scale, max_tokens=max_tokens)


def _rows(path: str | Path) -> Iterator[TracedRequest]:
    has_header = False
    for line, data in open_lines(path):
        cells = data.decode("utf-8", "replace").strip().split(",")
        if not has_header:
            if tuple(cells) != COLUMNS:
                raise WorkloadError(path, f"the columns are {cells}: {','.join(COLUMNS)} are needed", line)
            has_header = True
            continue
        if len(cells) != len(COLUMNS):
            raise WorkloadError(path, f"has {len(cells)} cells: {len(COLUMNS)} are needed", line)
        yield _request(path, line, dict(zip(COLUMNS, cells, strict=True)))
    if not has_header:
        raise WorkloadError(path, f"is empty: the columns {','.join(COLUMNS)} are needed")


def _request(path: str | Path, line: int, cells: dict[str, str]) -> TracedRequest:
    numbers = {name: int(cell) if cell.isdecimal() else cell for name, cell in cells.items()}
    num_prompt_tokens = whole_number(path, line, numbers, "ContextTokens", 1)
    num_output_tokens = whole_number(path, line, numbers, "GeneratedTokens")
    try:
        time_ns = _nanoseconds(cells["TIMESTAMP"])
    except ValueError:
        raise wrong_field(path, line, cells, "TIMESTAMP", "a time such as 2023-11-16 18:15:46.6805900") from None
    return TracedRequest(line, time_ns, num_output_tokens, lambda: {"prompt_len": num_prompt_tokens})


def _nanoseconds(timestamp: str) -> int:
    """Since 1970. Python 3.10 reads no seven digits of a second, and a float has too few for them."""
    seconds, _, fraction = timestamp.removesuffix("+00:00").partition(".")
    whole = int(datetime.fromisoformat(seconds).replace(tzinfo=timezone.utc).timestamp())
    return whole * 10**9 + int(fraction.ljust(9, "0")[:9])
