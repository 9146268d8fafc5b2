"""Compact files: two lines, what it is and the trace's header, then part after part, each behind its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from nanovllm.errors import TraceError
from nanovllm.limited_reading import read_lines
from nanovllm.trace.events import AnyEvent, StepFinished, TraceStarted
from nanovllm.trace.files.compact.parts import MAX_PART_BYTES, PartDecoder, PartEncoder
from nanovllm.trace.files.lines import CUT_HEADER, NoEventError, check_header, explain, misplaced

PART_EVENTS = 16_384
"""A part ends with the step in which it comes to so many events."""

_VERSION = 1
_NAME = b"nvtrace "
_FIRST_LINE = b"%s%d\n" % (_NAME, _VERSION)
_LENGTH_BYTES = 4
_BEGINS = f"a compact trace begins with {_FIRST_LINE.decode().strip()!r}"


class PartsForm:
    """What is to be written, and when."""

    def __init__(self) -> None:
        self._encoder = PartEncoder()

    def header(self, event: TraceStarted) -> bytes:
        """How a file begins."""
        return _FIRST_LINE + msgspec.json.encode(event) + b"\n"

    def take(self, events: Sequence[AnyEvent]) -> bytes:
        """What is to be written now: the parts that end among these events. However events come, parts are the same."""
        written = b""
        while events:
            end = self._end_of_part(events)
            self._encoder.take(events[:end])
            if end is None:
                break
            written += self.take_rest()
            events = events[end:]
        return written

    def _end_of_part(self, events: Sequence[AnyEvent]) -> int | None:
        """How many of these events the part still takes, if it ends among them."""
        num_before = self._encoder.num_events
        most = 4 * PART_EVENTS - num_before  # a step may be long
        for number in range(max(PART_EVENTS - num_before, 1), min(most, len(events)) + 1):
            if number == most or type(events[number - 1]) is StepFinished:
                return number
        return None

    def take_rest(self) -> bytes:
        """What is still to be written at the end."""
        if not self._encoder.num_events:
            return b""
        part = self._encoder.encode()
        return len(part).to_bytes(_LENGTH_BYTES, "little") + part


class PartsReader:
    """Iterates over the events of a file; ``problem`` then says where it was cut, if it was."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.problem: str | None = None

    def __iter__(self) -> Iterator[AnyEvent]:
        try:
            with Path(self.path).open("rb") as file:
                self._read_first_line(file)
                yield self._read_header(file)
                yield from self._read_parts(file)
        except OSError as error:
            raise TraceError(self.path, f"cannot be read: {error.strerror}") from None

    def _read_first_line(self, file: BinaryIO) -> None:
        line = file.readline(len(_FIRST_LINE) + 16)
        if not line:
            raise TraceError(self.path, f"is empty: {_BEGINS}")
        if line != _FIRST_LINE and _FIRST_LINE.startswith(line):
            raise TraceError(self.path, CUT_HEADER)
        version = line.removeprefix(_NAME).rstrip()
        if not line.startswith(_NAME) or not version.isdigit():
            raise TraceError(self.path, f"is no compact trace: {_BEGINS}; other traces are called .jsonl or .jsonl.gz")
        if int(version) != _VERSION:
            problem = f"is a compact trace of form {int(version)}, this version reads form {_VERSION}"
            raise TraceError(self.path, f"{problem}: read it with a newer version")

    def _read_header(self, file: BinaryIO) -> TraceStarted:
        line = next(read_lines(file, 2), b"")
        if not line.endswith(b"\n"):
            raise TraceError(self.path, CUT_HEADER)
        try:
            check_header(line)
            event: AnyEvent = msgspec.json.decode(line, type=AnyEvent)
            if not isinstance(event, TraceStarted):
                raise NoEventError(misplaced(event))
        except (NoEventError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(self.path, explain(line, error, is_first=True), 2) from None
        return event

    def _read_parts(self, file: BinaryIO) -> Iterator[AnyEvent]:
        decoder, num_events = PartDecoder(), 1
        while head := file.read(_LENGTH_BYTES):
            length = int.from_bytes(head, "little")
            part = file.read(length) if length <= MAX_PART_BYTES else b""
            if len(head) < _LENGTH_BYTES or len(part) < length <= MAX_PART_BYTES:
                self.problem = f"{self.path}: the file was cut after event {num_events:,}"
                return
            try:
                for event in decoder.decode(part):
                    if isinstance(event, TraceStarted):
                        raise TraceError(self.path, misplaced(event))
                    num_events += 1
                    yield event
            except ValueError as error:
                if isinstance(error, TraceError):
                    raise
                raise TraceError(self.path, f"is damaged behind event {num_events:,}: {error}") from None
