"""The Mooncake traces: JSON Lines with ``timestamp`` (milliseconds), ``input_length``, ``output_length`` and
``hash_ids``, one for each 512 tokens of the prompt; equal ids stand for equal content after equal content.

Source: https://github.com/kvcache-ai/Mooncake (Qin et al., FAST 2025).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sim.readers.common import TracedRequest, json_lines, to_workload, whole_number, wrong_field
from sim.readers.slices import Slice, cut
from sim.token_ids import MAX_DRAWN_TOKENS, draw_token_ids
from sim.workload import WorkloadRequest

HASH_BLOCK_SIZE = 512
"""Prompt tokens that one of the ``hash_ids`` stands for; the last may stand for fewer."""


def read_mooncake(
    path: str | Path,
    *,
    skip: int = 0,
    limit: int | None = None,
    start_s: float = 0.0,
    end_s: float | None = None,
    rate_scale: float = 1.0,
    max_tokens: int | None = None,
    seed: int = 0,
) -> Iterator[WorkloadRequest]:
    """The requests of a trace, see ``sim.readers``. Equal ``hash_ids`` become equal tokens, drawn from ``seed``, so
    that a prefix cache of any block size finds what the trace shares."""
    rows = (_Row.of(path, line, fields).traced(seed) for line, fields in json_lines(path))
    part = Slice(skip=skip, limit=limit, start_s=start_s, end_s=end_s)
    return to_workload(path, rows, part, rate_scale=rate_scale, max_tokens=max_tokens)


class TracedBlocks(NamedTuple):
    """What the trace tells of a request's KV: an id for each block of the prompt, and prompt and answer in tokens."""

    hash_ids: list[int]
    num_tokens: int


def read_mooncake_blocks(path: str | Path, part: Slice) -> Iterator[TracedBlocks]:
    """The blocks of the requests in a part of a trace, without drawing their tokens."""
    rows = (_Row.of(path, line, fields) for line, fields in json_lines(path))
    kept = cut(part, path, rows)
    return (TracedBlocks(row.hash_ids, row.num_prompt_tokens + row.num_output_tokens) for _, row in kept)


class _Row(NamedTuple):
    line: int
    time_ns: int
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: list[int]

    @classmethod
    def of(cls, path: str | Path, line: int, fields: dict[str, Any]) -> _Row:
        """Raises ``WorkloadError`` for a field that is missing or wrong."""
        time_ns = whole_number(path, line, fields, "timestamp") * 10**6
        num_output_tokens = whole_number(path, line, fields, "output_length")
        num_prompt_tokens = whole_number(path, line, fields, "input_length", 1, MAX_DRAWN_TOKENS)
        hash_ids = fields.get("hash_ids")
        num_ids = -(-num_prompt_tokens // HASH_BLOCK_SIZE)
        if not isinstance(hash_ids, list) or len(hash_ids) != num_ids or set(map(type, hash_ids)) != {int}:
            each = f"one for each {HASH_BLOCK_SIZE} of input_length={num_prompt_tokens} tokens"
            raise wrong_field(path, line, fields, "hash_ids", f"{num_ids} whole numbers, {each}")
        return cls(line, time_ns, num_prompt_tokens, num_output_tokens, hash_ids)

    def traced(self, seed: int) -> TracedRequest:
        """The request, whose prompt is drawn from ``seed``."""

        def prompt() -> dict[str, Any]:
            return {"prompt": _token_ids(self.hash_ids, self.num_prompt_tokens, seed)}

        return TracedRequest(self.line, self.time_ns, self.num_output_tokens, prompt)


def _token_ids(hash_ids: list[int], count: int, seed: int) -> list[int]:
    ids: list[int] = []
    for hash_id in hash_ids:
        ids += draw_token_ids(f"mooncake {seed} {hash_id}", min(HASH_BLOCK_SIZE, count - len(ids)))
    return ids
