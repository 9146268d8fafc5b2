"""A trace for https://ui.perfetto.dev (or chrome://tracing), in Chrome's JSON trace format.

Two groups of tracks. *engine*: a slice per step, counters of queues, blocks and tokens and, where a trace tells them,
the two parts of each step. *requests*: lanes with a slice per request, its phases inside it, and an arrow from each
preemption to the resumption. Times are microseconds, to the nanosecond.

Of the parts of a step only the lengths are told. What the device computes is drawn up to the step's end, and the
program's work up to where that begins: in truth a little of it comes after.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent, ChunkScheduled, DecodeScheduled, StepFinished, StepStarted
from nanovllm.trace.files.packed import written_whole
from nanovllm.trace.replay import Replay
from nanovllm.trace.request_lanes import Life, LifeFollower, Phase, pack

_ENGINE, _REQUESTS = 1, 2
"""Numbers of the two groups ("processes", in the format's words)."""
_STEPS, _HOST, _DEVICE = 0, 1, 2
"""Numbers of the engine's tracks ("threads")."""

_Slice = dict[str, Any]


def to_chrome_trace(events: Iterable[AnyEvent], source: object = "events") -> dict[str, Any]:
    """The whole trace as one JSON object; as many entries as there are steps and phases of requests, times a few.

    Raises ``TraceError`` where the events contradict each other; ``source`` is what it calls them.
    """
    replay, lives, engine = Replay(source), LifeFollower(), _EngineTracks()
    for event in events:
        replay.apply(event)
        lives.apply(event)
        engine.take(event, replay)
    engine.finish(replay)
    lanes = list(pack(lives.result()))
    entries = engine.entries + [entry for lane, life in lanes for entry in _entries_of(life, lane)]
    entries += _arrows(lanes)
    # Stable: what encloses comes before what begins with it, arrows last.
    entries.sort(key=lambda entry: (entry["ts"], -entry.get("dur", 0.0)))
    names = _track_names(max((lane for lane, _ in lanes), default=-1) + 1, engine.has_parts)
    header = replay.header
    return {
        "displayTimeUnit": "ms",
        "otherData": {} if header is None else msgspec.to_builtins(header),
        "traceEvents": names + entries,
    }


def write_chrome_trace(events: Iterable[AnyEvent], path: str | Path, source: object = "events") -> None:
    """Write ``to_chrome_trace`` to a file, compressed if its name ends in ``.gz``. Raises ``TraceError`` if it cannot
    be written."""
    data = msgspec.json.encode(to_chrome_trace(events, source))
    try:
        with written_whole(path) as file:
            file.write(data)
    except OSError as error:
        raise TraceError.unwritable(path, error) from error


def _microseconds(time_s: float) -> float:
    return round(time_s * 1e6, 3)


def _slice(group: int, track: int, name: str, start: float, end: float, details: dict[str, Any]) -> _Slice:
    start_us = _microseconds(start)
    duration_us = round(_microseconds(end) - start_us, 3)
    return {"ph": "X", "pid": group, "tid": track, "name": name, "ts": start_us, "dur": duration_us, "args": details}


def _track_names(num_lanes: int, has_parts: bool) -> list[dict[str, Any]]:
    def named(kind: str, group: int, track: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "pid": group, "tid": track, "name": kind, "args": {"name": name}}

    lanes = [named("thread_name", _REQUESTS, lane, f"lane {lane}") for lane in range(num_lanes)]
    tracks = {_HOST: "host", _DEVICE: "device"} if has_parts else {}
    parts = [named("thread_name", _ENGINE, track, name) for track, name in tracks.items()]
    return [
        named("process_name", _ENGINE, 0, "engine"),
        named("thread_name", _ENGINE, _STEPS, "steps"),
        *parts,
        named("process_name", _REQUESTS, 0, "requests"),
        *lanes,
    ]


# ---- the engine ----------------------------------------------------------------------------------------------


def _counts(replay: Replay, step_tokens: int) -> dict[str, int]:
    return {
        "waiting": len(replay.waiting),
        "running": len(replay.running),
        "free blocks": len(replay.free_blocks),
        "cached blocks": len(replay.block_hashes),
        "tokens": step_tokens,
    }


class _EngineTracks:
    """Slices of the steps, and counters: during a step as it computes, between steps as it left them."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._counted: dict[str, int] = {}
        self._start = self._end = 0.0
        self._tokens = 0
        self._host_end = self._device_end = 0.0
        self._computing: dict[str, int] = {}
        self._left: dict[str, int] = {}

    @property
    def has_parts(self) -> bool:
        """Whether some step told the parts of its time."""
        return self._device_end > 0.0

    def take(self, event: AnyEvent, replay: Replay) -> None:
        """Take in an event, and the state after it."""
        if isinstance(event, StepStarted):
            if event.time > self._end:
                self._count(self._end, self._left)
            self._start, self._tokens = event.time, 0
            self._computing = _counts(replay, 0)
        elif isinstance(event, (ChunkScheduled, DecodeScheduled)):
            self._tokens += event.tokens if isinstance(event, ChunkScheduled) else len(event.requests)
            self._computing = _counts(replay, self._tokens)
        elif isinstance(event, StepFinished):
            self._count(self._start, self._computing)
            self._end, self._left = event.time, _counts(replay, 0)
            details = {"step": event.step, "tokens": event.tokens, "requests": len(replay.scheduled)}
            name = event.phase if event.tokens else "empty"
            self.entries.append(_slice(_ENGINE, _STEPS, name, self._start, event.time, details))
            if event.host is not None and event.device is not None:
                self._tell_parts(event.time, event.host, event.device, name, details)

    def _tell_parts(self, end: float, host_s: float, device_s: float, name: str, details: dict[str, Any]) -> None:
        """Parts of two steps never overlap."""
        device_start = max(end - device_s, self._device_end)
        host_end = max(device_start, self._host_end)
        host_start = max(host_end - host_s, self._host_end)
        self.entries.append(_slice(_ENGINE, _HOST, name, host_start, host_end, details))
        self.entries.append(_slice(_ENGINE, _DEVICE, name, device_start, end, details))
        self._host_end, self._device_end = host_end, end

    def finish(self, replay: Replay) -> None:
        """Tell what the last step left, and the end."""
        self._count(self._end, self._left)
        self._count(replay.time, _counts(replay, 0))

    def _count(self, time: float, counts: dict[str, int]) -> None:
        """Tell the counts that have changed."""
        for name, value in counts.items():
            if self._counted.get(name) != value:
                entry = {"ph": "C", "pid": _ENGINE, "tid": 0, "name": name, "ts": _microseconds(time)}
                self.entries.append({**entry, "args": {name: value}})
        self._counted = counts or self._counted


# ---- the requests --------------------------------------------------------------------------------------------


def _entries_of(life: Life, lane: int) -> list[_Slice]:
    details = {
        "prompt_tokens": life.prompt_tokens,
        "max_tokens": life.max_tokens,
        "output_tokens": life.output_tokens,
        "preemptions": life.num_preemptions,
        "end": life.reason,
    }
    return [
        _slice(_REQUESTS, lane, f"request {life.request}", life.arrival, life.end, details),
        *(_slice(_REQUESTS, lane, phase.name, phase.start, phase.end, phase.details) for phase in life.phases),
    ]


def _arrows(lanes: list[tuple[int, Life]]) -> list[dict[str, Any]]:
    """From the start of each time of being preempted to the start of the recomputation that ends it."""
    arrows: list[dict[str, Any]] = []
    for lane, life in lanes:
        for before, after in _resumptions(life.phases):
            common = {"cat": "preemption", "name": "resumed", "id": len(arrows) // 2, "pid": _REQUESTS, "tid": lane}
            arrows.append({"ph": "s", "ts": _microseconds(before.start), **common})
            arrows.append({"ph": "f", "bp": "e", "ts": _microseconds(after.start), **common})
    return arrows


def _resumptions(phases: list[Phase]) -> Iterable[tuple[Phase, Phase]]:
    return ((before, after) for before, after in pairwise(phases) if before.name == "preempted")
