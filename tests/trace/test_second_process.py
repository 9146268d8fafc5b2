"""Observers: what a run came to, whoever measures it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nanovllm.errors import TraceError
from nanovllm.trace import second_process
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.files.compact.files import PART_EVENTS
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.slo import Slo
from nanovllm.trace.observer import RunObserver
from nanovllm.trace.second_process import ParallelObserver, observe
from tests.trace.runs import preempting_run

SLO = Slo(time_to_first_token_s=0.02, time_per_output_token_s=0.003)


def observed(observer: RunObserver, events: list[AnyEvent], end: type[BaseException] | None = None) -> RunObserver:
    """Let it see these events, ten at a time; then something may happen."""
    with observer:
        for start in range(0, len(events), 10):
            observer.take(events[start : start + 10])
        if end is not None:
            raise end
    return observer


@pytest.mark.parametrize("most", [30, 10**6])
@pytest.mark.parametrize("name", ["run.jsonl", "run.nvtrace"])
def test_a_second_process_comes_to_the_same(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_process, "START_EVENTS", most)
    events = preempting_run()
    observer = observed(ParallelObserver(tmp_path / name, SLO), events)
    assert observer.metrics().to_dict() == compute_metrics(events, slo=SLO).to_dict()
    assert read_trace(tmp_path / name).events == events


def test_a_process_that_was_started_in_vain_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_process, "PREPARE_EVENTS", 30)
    observer = ParallelObserver(tmp_path / "run.nvtrace")
    observed(observer, preempting_run())
    assert observer._process is not None
    assert observer._process._process.returncode is not None
    assert observer.metrics().to_dict() == compute_metrics(preempting_run()).to_dict()
    assert read_trace(tmp_path / "run.nvtrace").events == preempting_run()


KILLED = """
import os, signal, sys
from nanovllm.trace.second_process import observe
from tests.trace.runs import preempting_run
header, *events = preempting_run()
observer = observe(sys.argv[1])
observer.take([header, *events * int(sys.argv[2])])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["run.jsonl", "run.nvtrace"])
def test_a_run_that_is_killed_before_it_is_large_leaves_what_it_wrote(name: str, tmp_path: Path) -> None:
    path, (header, *events) = tmp_path / name, preempting_run()
    repetitions = 2 * PART_EVENTS // len(events)
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), str(repetitions)], check=False)
    assert process.returncode == -signal.SIGKILL
    written, expected = read_trace(path).events, [header, *events * repetitions]
    num_parts = 1 if name == "run.nvtrace" else 2  # a part that is not full is not written yet
    assert len(written) > num_parts * PART_EVENTS * 0.9
    assert written == expected[: len(written)]


def test_nobody_needs_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_process, "START_EVENTS", 30)
    assert observed(observe(), preempting_run()).metrics().to_dict() == compute_metrics(preempting_run()).to_dict()


def test_a_pipe_is_written_to_from_here(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert type(observed(observe(tmp_path / "pipe"), preempting_run())) is RunObserver
    os.close(reader)


def test_a_run_that_ends_badly_leaves_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_process, "START_EVENTS", 30)
    for most, name in ((30, "a.nvtrace"), (10**6, "b.nvtrace")):
        monkeypatch.setattr(second_process, "START_EVENTS", most)
        observer = ParallelObserver(tmp_path / name)
        with pytest.raises(KeyboardInterrupt):
            observed(observer, preempting_run()[:60], KeyboardInterrupt)
        assert observer.metrics().to_dict() == compute_metrics(preempting_run()[:60]).to_dict()
        assert read_trace(tmp_path / name).events == preempting_run()[:60]


def test_a_full_disk_is_one_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(second_process, "START_EVENTS", 30)
    observer = ParallelObserver("/dev/full")
    with pytest.raises(TraceError) as caught:
        observed(observer, preempting_run())
    assert str(caught.value) == "/dev/full: cannot be written: No space left on device"
    assert capfd.readouterr().err.count("\n") <= 1
    assert observer.metrics().to_dict() == compute_metrics(preempting_run()).to_dict()


def test_a_process_that_dies_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_process, "START_EVENTS", 30)
    observer = ParallelObserver(tmp_path / "run.nvtrace")
    observer.take(preempting_run()[:40])
    assert observer._process is not None
    os.kill(observer._process._process.pid, signal.SIGKILL)
    with pytest.raises(TraceError, match=r"run\.nvtrace: the process that measured it and wrote the trace has died"):
        observed(observer, preempting_run()[40:] * 50)
    with pytest.raises(TraceError, match="has died"):
        observer.metrics()


@pytest.mark.parametrize("events", [preempting_run()[:40], []])
def test_a_run_that_is_killed_leaves_a_process_that_ends_without_a_word(events: list[AnyEvent], tmp_path: Path) -> None:
    script = f"import sys; sys.path[:] = {sys.path!r}; from nanovllm.trace.second_process import main; main()"
    ours, its = os.pipe()
    os.close(ours)  # as if the process that waits for the answer were gone
    messages = [second_process._Task(str(tmp_path / "run.nvtrace"), None), events]
    data = b"".join(len(part).to_bytes(4, "little") + part for part in map(msgspec.msgpack.encode, messages))
    process = subprocess.run(
        [sys.executable, "-c", script], input=data, stdout=its, stderr=subprocess.PIPE, check=False
    )
    os.close(its)
    assert (process.returncode, process.stderr) == (0, b"")
    assert not events or read_trace(tmp_path / "run.nvtrace").events == events


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        ParallelObserver(tmp_path / "nowhere" / "run.nvtrace")


def test_what_cannot_be_measured_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, events = tmp_path / "run.jsonl", preempting_run()
    observer = ParallelObserver(path)
    observer.take(events[:20])
    monkeypatch.setattr(MetricsCollector, "apply_all", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        observer.__exit__()
    assert read_trace(path).events == events[:20]
