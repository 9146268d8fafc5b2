"""An observer of large runs in a process of its own: deciding goes on while another core measures and writes.

The other process reads from its standard input: first what it is to do, then lists of events, each behind its length;
at the end it answers on its standard output. If the run's process is killed, it writes down what it got until then.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from nanovllm.errors import TraceError
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.metrics import Metrics
from nanovllm.trace.metrics.slo import Slo
from nanovllm.trace.observer import RunObserver
from nanovllm.trace.recorder import BATCH_EVENTS

PREPARE_EVENTS = 10_000
"""A run of so many events may become a large one: a process is started, which takes some tenths of a second."""
START_EVENTS = 50_000
"""A run of so many is one: it is that process's, from its first event on. Shorter ones are over before it could have
done them."""

_CHUNK_BYTES = 2**20
"""So much is written at once: after each write, a thread waits up to 5 ms for the interpreter's lock."""
_MOST_CHUNKS = 8
"""So many may be on their way; whoever sends more, waits."""
_LENGTH_BYTES = 4
_PROGRAM = "import sys; sys.path[:] = {path!r}; from nanovllm.trace.second_process import main; main()"


class _Task(msgspec.Struct):
    trace: str | None
    slo: Slo | None


class _Answer(msgspec.Struct):
    metrics: Metrics | None = None
    problem: str | None = None


def observe(trace: str | Path | None = None, slo: Slo | None = None) -> RunObserver:
    """The observer for a run of unknown length. A pipe or device is written to from here: it may be open here only."""
    is_elsewhere = trace is None or not Path(trace).exists() or Path(trace).is_file()
    return ParallelObserver(trace, slo) if is_elsewhere else RunObserver(trace, slo)


class ParallelObserver(RunObserver):
    """As ``RunObserver``; from ``START_EVENTS`` events on, the work is done by another process."""

    def __init__(self, trace: str | Path | None = None, slo: Slo | None = None) -> None:
        """See ``RunObserver``."""
        super().__init__(trace, slo)
        self._task = _Task(None if trace is None else str(trace), slo)
        self._kept: list[AnyEvent] = []
        self._process: _SecondProcess | None = None
        self._is_elsewhere = False
        self._failure: TraceError | None = None
        self._answer = _Answer()

    def take(self, events: list[AnyEvent]) -> None:
        """See ``RunObserver``."""
        if self._is_elsewhere:
            assert self._process is not None, "there is a process as soon as it is handed over to"
            self._process.send(events)
            return
        self._write(events)  # at once, even if it may be written again: this process may be killed
        self._kept += events
        if self._process is None and len(self._kept) >= min(PREPARE_EVENTS, START_EVENTS):
            self._process = _SecondProcess()
        if self._process is not None and len(self._kept) >= START_EVENTS:
            self._hand_over(self._process)

    def _hand_over(self, process: _SecondProcess) -> None:
        try:
            super().__exit__()  # the file is the other process's from now on
        except TraceError as error:  # ends the trace, not the run
            self._failure = error
            self._task.trace = None
        self._is_elsewhere = True
        process.begin(self._task)
        for start in range(0, len(self._kept), BATCH_EVENTS):
            process.send(self._kept[start : start + BATCH_EVENTS])
        self._kept = []

    def metrics(self) -> Metrics:
        """See ``RunObserver``. To be asked for when the context is left. Raises ``TraceError`` if nobody knows them."""
        if not self._is_elsewhere:
            return super().metrics()
        if self._answer.metrics is None:
            raise self._error() or TraceError("the run", "is not measured yet")
        return self._answer.metrics

    def _error(self) -> TraceError | None:
        if self._answer.problem is None:
            return self._failure
        return TraceError(self._task.trace or "the run", self._answer.problem)

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._process is None or not self._is_elsewhere:
            if self._process is not None:
                self._process.kill()
            try:
                self._measure(self._kept)
            finally:
                super().__exit__(kind, error, traceback)
            return
        self._answer = self._process.finish()
        if kind is None and (problem := self._error()) is not None:  # else the exception on its way says more
            raise problem


class _SecondProcess:
    """The other process, seen from this one."""

    def __init__(self) -> None:
        # A session of its own: a Ctrl-C in the terminal is meant for the run.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it is made with a pipe"
        self._pipe = self._process.stdin
        self._encode = msgspec.msgpack.Encoder().encode
        self._sender = ThreadPoolExecutor(max_workers=1)
        self._sent: deque[Future[None]] = deque()
        self._chunk: list[bytes] = []
        self._num_bytes = 0

    def begin(self, task: _Task) -> None:
        """Say what it is to do."""
        self._send(self._encode(task))

    def send(self, events: list[AnyEvent]) -> None:
        """Let it take in the next events."""
        self._send(self._encode(events))
        if self._num_bytes >= _CHUNK_BYTES:
            self._flush()

    def _send(self, data: bytes) -> None:
        self._chunk += len(data).to_bytes(_LENGTH_BYTES, "little"), data
        self._num_bytes += len(data)

    def _flush(self) -> None:
        self._sent.append(self._sender.submit(self._write, b"".join(self._chunk)))
        self._chunk, self._num_bytes = [], 0
        if len(self._sent) > _MOST_CHUNKS:
            self._sent.popleft().result()

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # ``finish`` finds out
            self._pipe.write(data)

    def finish(self) -> _Answer:
        """Wait until it is through with all events."""
        try:
            self._flush()
            self._sender.shutdown()
            data, _ = self._process.communicate()
        finally:
            self._process.kill()  # nothing happens if it has ended
            self._process.wait()
        if self._process.returncode:
            return _Answer(problem="the process that measured it and wrote the trace has died")
        return msgspec.msgpack.decode(data, type=_Answer)

    def kill(self) -> None:
        """It is not needed."""
        self._process.kill()
        self._process.communicate()
        self._sender.shutdown()


def main() -> None:
    """The other process."""
    gc.disable()  # events hold no cycles, and looking for some takes a quarter of the time
    # Where nobody waits for the answer any more, the run's process was killed.
    with suppress(BrokenPipeError), sys.stdin.buffer as pipe, sys.stdout.buffer as out:
        if (data := _read(pipe)) is not None:
            task = msgspec.msgpack.decode(data, type=_Task)
            out.write(msgspec.msgpack.encode(_observe(task, pipe)))


def _observe(task: _Task, pipe: BinaryIO) -> _Answer:
    decode = msgspec.msgpack.Decoder(list[AnyEvent]).decode
    observer, problem = None, None
    try:
        observer = RunObserver(task.trace, task.slo)
        with observer:
            while (data := _read(pipe)) is not None:
                observer.take(decode(data))
    except TraceError as error:
        problem = str(error).removeprefix(f"{error.path}: ")
    return _Answer(None if observer is None else observer.metrics(), problem)


def _read(pipe: BinaryIO) -> bytes | None:
    """What was sent next; None at the end."""
    head = pipe.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    data = pipe.read(length)
    return data if head and len(data) == length else None
