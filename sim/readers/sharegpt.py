"""ShareGPT-style traces with token ids: JSON Lines with ``input_tok_ids``, ``output_toks`` (how many tokens were
generated) and ``arrival_time_ns``; ``input_toks`` (how many ids there are), ``output_tok_ids`` may stand beside them.

Source: the workloads of LLMServingSim 2.0, https://github.com/casys-kaist/LLMServingSim, cut from ShareGPT.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.readers.common import TracedRequest, json_lines, to_workload, whole_number, wrong_field
from sim.readers.slices import Slice
from sim.workload import WorkloadRequest


def read_sharegpt(
    path: str | Path,
    *,
    skip: int = 0,
    limit: int | None = None,
    start_s: float = 0.0,
    end_s: float | None = None,
    rate_scale: float = 1.0,
    max_tokens: int | None = None,
) -> Iterator[WorkloadRequest]:
    """The requests of a trace, see ``sim.readers``, with the prompts of the trace."""
    rows = (_request(path, line, fields) for line, fields in json_lines(path))
    part = Slice(skip=skip, limit=limit, start_s=start_s, end_s=end_s)
    return to_workload(path, rows, part, rate_scale=rate_scale, max_tokens=max_tokens)


def _request(path: str | Path, line: int, fields: dict[str, Any]) -> TracedRequest:
    time_ns = whole_number(path, line, fields, "arrival_time_ns")
    num_output_tokens = whole_number(path, line, fields, "output_toks")
    ids = fields.get("input_tok_ids")
    if not isinstance(ids, list) or not ids or not all(type(token) is int and token >= 0 for token in ids):
        raise wrong_field(path, line, fields, "input_tok_ids", "a list of one or more token ids")
    if "input_toks" in fields and fields["input_toks"] != len(ids):
        raise wrong_field(path, line, fields, "input_toks", f"{len(ids)}, as many as input_tok_ids has")
    return TracedRequest(line, time_ns, num_output_tokens, lambda: {"prompt": ids})
