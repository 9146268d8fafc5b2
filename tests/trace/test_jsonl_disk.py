"""Traces on a disk that fills up, and traces of runs that end badly: what was there stays readable."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import TraceError
from nanovllm.trace.events import StepStarted
from nanovllm.trace.jsonl import TraceWriter, read_trace, write_trace
from tests.trace.runs import preempting_run
from tests.trace.test_jsonl import HEADER, interrupted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_ends_the_trace_and_is_said_twice(caplog: pytest.LogCaptureFixture) -> None:
    writer = TraceWriter("/dev/full")
    for event in preempting_run():
        writer.emit(event)
    problem = "/dev/full: cannot be written: No space left on device"
    assert caplog.messages == [f"the trace ends here, the run goes on: {problem}"]
    with pytest.raises(TraceError, match=problem):
        writer.close()
    writer.close()  # is closed all the same


class FullFile:
    """A file on a disk with so many bytes left."""

    def __init__(self, file: BinaryIO, num_bytes: int) -> None:
        self._file = file
        self._num_bytes = num_bytes

    def write(self, data: bytes) -> None:
        taken = data[: self._num_bytes]
        self._num_bytes -= len(taken)
        self._file.write(taken)
        if taken != data:
            raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@given(num_bytes=st.integers(0, 4000))
def test_what_the_disk_took_is_readable(num_bytes: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path, events = tmp_path_factory.getbasetemp() / "full.jsonl", preempting_run()
    writer = TraceWriter(path)
    for event in events[:2]:
        writer.emit(event)
    writer._file = cast(BinaryIO, FullFile(writer._file, num_bytes))
    for event in events[2:]:
        writer.emit(event)
    with pytest.raises(TraceError, match="No space left"):
        writer.close()
    read = read_trace(path).events
    assert read == events[: len(read)]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_run_that_does_not_begin_leaves_an_older_trace_as_it_was(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    TraceWriter(path).close()
    assert not path.exists()
    write_trace(preempting_run(), path)
    content = path.read_bytes()
    writer = TraceWriter(path)
    assert path.read_bytes() == content
    writer.close()
    assert path.read_bytes() == content
    with pytest.raises(KeyboardInterrupt):
        write_trace(interrupted([HEADER]), path)
    assert path.read_bytes() == content
    write_trace([HEADER], path)
    assert read_trace(path).events == [HEADER]


def fill_the_disk_and_interrupt(path: Path) -> None:
    with TraceWriter(path) as writer:
        writer.emit(HEADER)
        writer.emit(StepStarted(0, 0.0, 0, 0, 8))
        writer._file = cast(BinaryIO, FullFile(writer._file, 0))
        writer.emit(StepStarted(1, 0.0, 0, 0, 8))
        raise KeyboardInterrupt


def test_an_exception_is_not_replaced_by_the_disk_s(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fill_the_disk_and_interrupt(path)
