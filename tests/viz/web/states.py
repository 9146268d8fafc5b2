"""The whole state after a step as plain values: from the replayer, and from a page's tables read in Python.

Both have the shape of ``window.replay.snapshot()`` in the page.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any

from nanovllm.trace.replay import Replay
from viz import palette

State = dict[str, Any]
QUEUES = ("finished", "waiting", "running")


def replayed(replay: Replay) -> State:
    """What the replayer holds."""
    requests = [replay.requests[request] for queue in (replay.running, replay.waiting) for request in queue]
    return {
        "step": replay.step,
        "timeNs": round(replay.time * 1e9),
        "waiting": list(replay.waiting),
        "running": list(replay.running),
        "requests": [
            {
                "id": state.request,
                "queue": state.status,
                "tokens": state.num_tokens,
                "cached": state.num_cached_tokens,
                "preemptions": state.num_preemptions,
                "prompt": state.num_prompt_tokens,
                "maxTokens": state.max_tokens,
                "blocks": state.block_table,
            }
            for state in requests
        ],
        "freeBlocks": list(replay.free_blocks),
        "references": replay.ref_counts,
        "hashes": [replay.block_hashes.get(block) for block in range(replay.pool.num_blocks)],
    }


def unpack(packed: dict[str, Any]) -> dict[str, list[int]]:
    """Columns by name: what ``decode.js`` does."""
    numbers = _varints(zlib.decompress(base64.b64decode(packed["bytes"])))
    columns: dict[str, list[int]] = {}
    for name, _, length in packed["layout"]:
        value, column = 0, []
        for _ in range(length):
            folded = next(numbers)
            value += (folded >> 1) ^ -(folded & 1)
            column.append(value)
        columns[name] = column
    assert next(numbers, None) is None, "all numbers are read"
    return columns


def _varints(stream: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in stream:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


class Tables:
    """A recorded run, read without a browser."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.recorded = recorded
        self.columns = unpack(recorded["tables"])

    def column(self, name: str) -> list[int]:
        return self.columns[name]

    def value(self, track: str, name: str, row: int, frame: int) -> int:
        """A row's number at a frame, by going through its points one by one."""
        first, frames = self.column(f"{track}.first"), self.column(f"{track}.frame")
        point = max(i for i in range(first[row], first[row + 1]) if frames[i] <= frame)
        growth = self.columns.get(f"{track}.{name}_growth")
        value = self.column(f"{track}.{name}")[point]
        return value if growth is None else value + growth[point] * (frame - frames[point])

    def state(self, frame: int) -> State:
        queues = {name: self._queue(queue, frame) for queue, name in enumerate(QUEUES)}
        num_blocks = len(self.column("block.first")) - 1
        references = [self.value("block", "references", block, frame) for block in range(num_blocks)]
        free = [block for block in range(num_blocks) if not references[block]]
        ids = self.recorded["ids"]
        return {
            "step": self.column("frame.step")[frame],
            "timeNs": self.column("frame.end_ns")[frame],
            "waiting": [ids[row] for row in queues["waiting"]],
            "running": [ids[row] for row in queues["running"]],
            "requests": [self._request(row, name, frame) for name in ("running", "waiting") for row in queues[name]],
            "freeBlocks": sorted(free, key=lambda block: self.value("block", "free_rank", block, frame)),
            "references": references,
            "hashes": [self._hash(self.value("block", "hash", block, frame)) for block in range(num_blocks)],
        }

    def _queue(self, queue: int, frame: int) -> list[int]:
        rows = []
        for row, (added, ended) in enumerate(
            zip(self.column("request.added"), self.column("request.ended"), strict=True)
        ):
            is_alive = added <= frame and (ended < 0 or ended >= frame)
            if is_alive and self.value("place", "queue", row, frame) == queue:
                rows.append(row)
        return sorted(rows, key=lambda row: self.value("place", "rank", row, frame))

    def _request(self, row: int, queue: str, frame: int) -> State:
        return {
            "id": self.recorded["ids"][row],
            "queue": queue,
            "tokens": self.value("motion", "tokens", row, frame),
            "cached": self.value("motion", "cached", row, frame),
            "preemptions": self.value("place", "preemptions", row, frame),
            "prompt": self.column("request.prompt")[row],
            "maxTokens": self.column("request.max_tokens")[row],
            "blocks": self.block_table(row, frame),
        }

    def block_table(self, row: int, frame: int) -> list[int]:
        names = ("block", "row", "position", "start", "end")
        holdings = zip(*(self.column(f"holding.{name}") for name in names), strict=True)
        held = [
            (position, block)
            for block, holder, position, start, end in holdings
            if holder == row and start <= frame and (end < 0 or end > frame)
        ]
        return [block for _, block in sorted(held)]

    def _hash(self, code: int) -> str | None:
        if code < 0:
            return None
        return f"{self.column('hash.high')[code]:08x}{self.column('hash.low')[code]:08x}"

    def sentences(self, frame: int) -> list[str]:
        """A frame's sentences as texts."""
        frames = self.column("sentence.frame")
        return [self._sentence(i) for i in range(len(frames)) if frames[i] == frame]

    def _sentence(self, index: int) -> str:
        template, _ = self.recorded["words"]["templates"][self.column("sentence.template")[index]]
        arguments = iter(self.column("sentence.argument")[self.column("sentence.first_argument")[index] :])
        text = ""
        for part in template.replace("{", "}").split("}"):
            if part == "r":
                text += str(self.recorded["ids"][next(arguments)])
            elif part == "n":
                text += str(next(arguments))
            elif part == "t":
                text += self.recorded["words"]["texts"][next(arguments)]
            elif part == "b":
                text += _blocks(arguments)
            else:
                text += part
        return text

    def activity(self, row: int, frame: int) -> str:
        return palette.ACTIVITIES[self.value("motion", "activity", row, frame)].name


def _blocks(arguments: Iterator[int]) -> str:
    num_others, num_runs = next(arguments), next(arguments)
    runs = [(next(arguments), next(arguments)) for _ in range(num_runs)]
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{text} and {num_others} more" if num_others else text
