"""The Azure LLM inference traces of 2023 and 2024: CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.

Source: https://github.com/Azure/AzurePublicDataset, published with Splitwise (Patel et al., 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from nanovllm.errors import WorkloadError, shown
from sim.readers.common import TracedRequest, to_workload, whole_number, wrong_field
from sim.readers.slices import Slice
from sim.token_ids import MAX_DRAWN_TOKENS
from sim.workload import WorkloadRequest
from sim.workload.files import open_lines

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure(
    path: str | Path,
    *,
    skip: int = 0,
    limit: int | None = None,
    start_s: float = 0.0,
    end_s: float | None = None,
    rate_scale: float = 1.0,
    max_tokens: int | None = None,
) -> Iterator[WorkloadRequest]:
    """The requests of a trace, see ``sim.readers``; prompts by length, since the trace keeps no content."""
    part = Slice(skip=skip, limit=limit, start_s=start_s, end_s=end_s)
    return to_workload(path, _rows(path), part, rate_scale=rate_scale, max_tokens=max_tokens)


def _rows(path: str | Path) -> Iterator[TracedRequest]:
    rows = ((line, data.decode("utf-8", "replace").strip().split(",")) for line, data in open_lines(path))
    header_line, columns = next(rows, (0, []))
    if not columns:
        raise WorkloadError(path, f"is empty: the columns {','.join(COLUMNS)} are needed")
    if tuple(columns) != COLUMNS:
        raise WorkloadError(path, f"the columns are {shown(columns)}: {','.join(COLUMNS)} are needed", header_line)
    line = header_line
    for line, cells in rows:
        if len(cells) != len(COLUMNS):
            raise WorkloadError(path, f"has {len(cells)} cells: {len(COLUMNS)} are needed", line)
        yield _request(path, line, dict(zip(COLUMNS, cells, strict=True)))
    if line == header_line:
        raise WorkloadError(path, "holds no request: a row for each is needed")


def _request(path: str | Path, line: int, cells: dict[str, str]) -> TracedRequest:
    numbers = {name: int(cell) if _is_number(cell) else cell for name, cell in cells.items()}
    num_prompt_tokens = whole_number(path, line, numbers, "ContextTokens", 1, MAX_DRAWN_TOKENS)
    num_output_tokens = whole_number(path, line, numbers, "GeneratedTokens")
    try:
        time_ns = _nanoseconds(cells["TIMESTAMP"])
    except ValueError:
        raise wrong_field(path, line, cells, "TIMESTAMP", "a time such as 2023-11-16 18:15:46.6805900") from None
    return TracedRequest(line, time_ns, num_output_tokens, lambda: {"prompt_len": num_prompt_tokens})


def _is_number(cell: str) -> bool:
    """Longer ones are refused as too large; Python would not even read the longest."""
    return cell.isascii() and cell.isdecimal() and len(cell) < 20


def _nanoseconds(timestamp: str) -> int:
    """Since 1970. Python 3.10 reads no seven digits of a second, and a float has too few for them."""
    seconds, _, fraction = timestamp.removesuffix("+00:00").partition(".")
    moment = datetime.fromisoformat(seconds)
    if moment.tzinfo is not None or not f"0{fraction}".isdecimal():
        raise ValueError(f"{timestamp} has another time zone, or a fraction that is none")
    whole = int(moment.replace(tzinfo=timezone.utc).timestamp())
    return whole * 10**9 + int(fraction.ljust(9, "0")[:9])
