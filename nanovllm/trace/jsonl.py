"""Traces in files: JSON Lines, one event a line; gzip-compressed where the name ends in ``.gz``. Or, where it ends in
``.nvtrace``, the form of ``compact``.

A run may be interrupted anywhere. The writer hands every finished step to the operating system, and the reader
accepts a file that was cut at any byte: it reads up to the last whole line and says what is missing.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from nanovllm.errors import TraceError
from nanovllm.limited_reading import read_lines
from nanovllm.trace.events import AnyEvent, StepFinished, TraceStarted
from nanovllm.trace.files.completeness import Completeness
from nanovllm.trace.files.lines import (
    A_TRACE_BEGINS,
    CUT_HEADER,
    HEADER_START,
    NoEventError,
    check_header,
    explain,
    misplaced,
    why_no_json,
)
from nanovllm.trace.files.packed import is_compact, is_packed, open_for_reading, open_untouched, start_writing

if TYPE_CHECKING:
    from nanovllm.trace.files.compact import PartsForm, PartsReader

_log = logging.getLogger(__name__)

PathLike = str | Path

_COMPRESSED_FLUSH_BYTES = 1 << 20
"""So much is gathered before a compressed file is flushed: each flush costs compression."""


@dataclass(frozen=True)
class Trace:
    """A trace that was read from a file.

    ``complete``: the file is whole, and the run it tells of went to its end: no step is open and no request
    unfinished. If not, ``problem`` says in one sentence what is missing, and where. (A file that was cut at a
    moment when nothing was going on cannot be told from one of a shorter run.)
    """

    path: str
    header: TraceStarted
    events: list[AnyEvent]
    """All events, the header included: event ``i`` stands on line ``i + 1``."""
    complete: bool
    problem: str | None


# ---- writing -------------------------------------------------------------------------------------------------


class TraceWriter:
    """Writes a trace to a file: hand ``writer.emit`` to the engine. A context manager.

    The file is opened at once, and emptied by the first event after the header: a run that fails before it begins
    leaves an older trace as it was. Events are gathered in a buffer. The end of each step hands it to the operating
    system, so that a process killed without warning loses at most the step it was in (of a compressed file: the last
    megabyte; of a compact one: the last part).

    A disk that is full ends the trace, not the run: what comes afterwards is dropped.
    """

    def __init__(self, path: PathLike) -> None:
        """Raises ``TraceError`` if the file cannot be written."""
        self.path = Path(path)
        self._is_new = not self.path.exists()
        self._has_begun = False
        self._header = b""
        self._error: OSError | None = None
        self._form = _form_of(self.path)
        self._flush_bytes = _COMPRESSED_FLUSH_BYTES if is_packed(self.path) else 0
        self._num_unflushed_bytes = 0
        try:
            self._file = open_untouched(self.path)
        except OSError as error:
            raise TraceError.unwritable(self.path, error) from error

    def emit(self, event: AnyEvent) -> None:
        """Write one event."""
        self.emit_all([event])

    def emit_all(self, events: Sequence[AnyEvent]) -> None:
        """Write several events, which is faster than one by one."""
        if self._error is not None or not events:
            return
        try:
            if not self._has_begun:
                if type(events[0]) is TraceStarted and not self._header:
                    self._header = self._form.header(events[0])
                    events = events[1:]
                if not events:
                    return
                self._begin()
            data = self._form.take(events)
            self._file.write(data)
            self._num_unflushed_bytes += len(data)
            if type(events[-1]) is StepFinished and self._num_unflushed_bytes > self._flush_bytes:
                self._file.flush()
                self._num_unflushed_bytes = 0
        except OSError as error:
            self._error = error
            _log.warning("the trace ends here, the run goes on: %s", TraceError.unwritable(self.path, error))

    def close(self) -> None:
        """Write what is still in the buffer and close the file. Calling it again does nothing.

        Raises ``TraceError`` if the disk did not take all events; the file is closed all the same.
        """
        error, self._error = self._error, None
        try:
            if self._header and not self._has_begun:
                self._begin()
            if error is None and (rest := self._form.take_rest()):
                self._file.write(rest)
        except OSError as writing_error:
            error = writing_error
        try:
            self._file.close()
        except OSError as closing_error:
            error = error or closing_error
        if self._is_new and not self._has_begun:
            self.path.unlink(missing_ok=True)
        if error is not None:
            raise TraceError.unwritable(self.path, error) from error

    def _begin(self) -> None:
        self._has_begun = True
        self._file = start_writing(self._file, self.path)
        self._file.write(self._header)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._header = b""  # nothing was begun
        try:
            self.close()
        except TraceError:
            if kind is None:  # else the exception on its way says more
                raise


def _form_of(path: Path) -> PartsForm | _LinesForm:
    if not is_compact(path):
        return _LinesForm()
    from nanovllm.trace.files.compact import PartsForm

    return PartsForm()


class _LinesForm:
    """JSON Lines: an event is written at once."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()

    def header(self, event: TraceStarted) -> bytes:
        """How a file begins."""
        return self._encoder.encode(event) + b"\n"

    def take(self, events: Sequence[AnyEvent]) -> bytes:
        """What is to be written now."""
        return self._encoder.encode_lines(events)

    def take_rest(self) -> bytes:
        """What is still to be written at the end."""
        return b""


def write_trace(events: Iterable[AnyEvent], path: PathLike) -> None:
    """Write all ``events`` to a file. Raises ``TraceError`` if it cannot be written."""
    with TraceWriter(path) as writer:
        for event in events:
            writer.emit(event)


# ---- reading -------------------------------------------------------------------------------------------------


def read_trace(path: PathLike) -> Trace:
    """Read a whole trace. One that was cut is read up to its last whole line: see ``Trace.problem``.

    Raises ``TraceError``, with file and line, for a file that cannot be read, is empty, is no trace or one of
    another schema, or has a line in it that is no event.
    """
    stream = TraceStream(path)
    events = list(stream)
    header = events[0]
    assert type(header) is TraceStarted, "a reader yields the header first"
    return Trace(str(path), header, events, stream.problem is None, stream.problem)


class TraceStream:
    """Iterates over the events of a trace, the header first, in constant memory; then ``problem`` is that of the
    ``Trace``. Raises as ``read_trace`` does, when it gets there."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self.problem: str | None = None

    def __iter__(self) -> Iterator[AnyEvent]:
        reader, completeness = _reader(self.path), Completeness()
        for event in reader:
            completeness.take(event)
            yield event
        self.problem = reader.problem
        if self.problem is None and (unfinished := completeness.why_unfinished()) is not None:
            self.problem = f"{self.path}:{completeness.num_events}: {unfinished}"


def iter_events(path: PathLike) -> Iterator[AnyEvent]:
    """Read a trace event by event, the header first, in constant memory. Stops where a cut file was cut.

    Raises ``TraceError`` as ``read_trace`` does, when it gets there.
    """
    return iter(_reader(path))


def _reader(path: PathLike) -> PartsReader | _LinesReader:
    if not is_compact(path):
        return _LinesReader(path)
    from nanovllm.trace.files.compact import PartsReader  # numpy with it, which takes longer than reading most traces

    return PartsReader(path)


class _LinesReader:
    """Iterates over the events of a file; ``problem`` then says where it was cut, if it was."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self.problem: str | None = None
        self._num_lines = 0

    def __iter__(self) -> Iterator[AnyEvent]:
        decode = msgspec.json.Decoder(AnyEvent).decode
        for line in self._lines():
            try:
                if self._num_lines == 1:
                    check_header(line)
                event: AnyEvent = decode(line)
                if (self._num_lines == 1) is not (type(event) is TraceStarted):
                    raise NoEventError(misplaced(event))
            except (NoEventError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._refuse(line, error)
                return
            yield event
        if self._num_lines == 0:
            raise TraceError(self.path, f"is empty: {A_TRACE_BEGINS}" if self.problem is None else CUT_HEADER)

    def _lines(self) -> Iterator[bytes]:
        try:
            with open_for_reading(self.path) as file:
                for line in read_lines(file):
                    self._num_lines += 1
                    yield line.removeprefix(BOM_UTF8) if self._num_lines == 1 else line  # some editors put one
        except EOFError:  # what gzip says of a stream without an end
            self.problem = f"{self.path}:{self._num_lines}: the compressed file was cut after this line"
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(self.path, f"is not readable as gzip: {error}", self._num_lines + 1) from None
        except OSError as error:
            raise TraceError(self.path, f"cannot be read: {error.strerror}") from None

    def _refuse(self, line: bytes, error: Exception) -> None:
        """Raise what is wrong with a line, unless it is the last one and was cut: that is only noted."""
        was_cut = not line.endswith(b"\n") and why_no_json(line) is not None
        if was_cut and self._num_lines > 1:
            self.problem = f"{self.path}:{self._num_lines}: the file was cut within this line"
            return
        if was_cut and line.startswith(HEADER_START[: len(line)]):
            raise TraceError(self.path, CUT_HEADER)
        raise TraceError(self.path, explain(line, error, self._num_lines == 1), self._num_lines) from None
