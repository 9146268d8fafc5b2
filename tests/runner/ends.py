"""Generations that do not come to their end, each in a process of its own, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from nanovllm.trace.check import check
from nanovllm.trace.events import StepFinished
from nanovllm.trace.jsonl import Trace, read_trace

HOWS = ("ctrl-c", "exception", "kill")
_SIGNALS = {"ctrl-c": signal.SIGINT, "kill": signal.SIGKILL}
_NUM_STEPS = 20
"""So many steps are computed before the end."""

# Even if this process was told to ignore a SIGINT, that one shall hear it.
_SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from nanovllm import LLM, SamplingParams

directory, device, trace, how, num_steps = sys.argv[1:]
options = dict(kvcache_block_size=16, num_kvcache_blocks=120, max_num_seqs=4, max_model_len=512, num_threads=1)
llm = LLM(directory, device=device, trace=trace, **options)

def fail_behind(compute):
    calls = []
    def computing(*args):
        result = compute(*args)
        calls.append(args)
        if len(calls) > int(num_steps):
            raise RuntimeError("injected into a step")
        return result
    return computing

if how == "exception":
    steps = llm.engine.backend._steps
    steps.compute = fail_behind(steps.compute)
prompts = [[1 + index, 2, 3] for index in range(6)]
llm.generate(prompts, SamplingParams(temperature=0.7, max_tokens=450, ignore_eos=True), use_tqdm=False)
"""


@dataclass(frozen=True)
class Ended:
    """A process that has ended. ``code``: minus the signal that ended it."""

    pid: int
    code: int
    err: str
    trace: Trace


def run_to_its_end(directory: Path, device: str, trace: Path, how: str) -> Ended:
    """Generate on ``device`` until ``how`` ends it in the middle; the trace is kept in the file ``trace``.

    The process writes its trace into a pipe, which wakes this one up when something comes.
    """
    reader, writer = os.pipe()
    words = [directory, device, f"/dev/fd/{writer}", how, _NUM_STEPS]
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[writer],
        start_new_session=True,
    )
    os.close(writer)
    num_steps = 0
    with process, os.fdopen(reader, "rb") as pipe, trace.open("wb") as file:
        for line in pipe:
            file.write(line)
            num_steps += b'"step_finished"' in line
            if num_steps == _NUM_STEPS and how in _SIGNALS:
                process.send_signal(_SIGNALS[how])
                break
        file.write(pipe.read())
        err = process.communicate()[1]
    assert num_steps > 0, err
    return Ended(process.pid, process.returncode, err, read_trace(trace))


def assert_told(ended: Ended, how: str) -> None:
    """Whoever waits for the process learns how it ended, and the trace tells of all that was done."""
    # On a card, what torch evaluates when the interpreter ends makes it forget that a SIGINT was the reason.
    allowed = {"ctrl-c": (-signal.SIGINT, 1), "exception": (1,), "kill": (-signal.SIGKILL,)}
    assert ended.code in allowed[how], ended.err
    last_line = ended.err.strip().rpartition("\n")[2]
    assert last_line == {"ctrl-c": "KeyboardInterrupt", "exception": "RuntimeError: injected into a step"}.get(how, "")
    events = ended.trace.events
    assert not check(events, complete=ended.trace.complete)
    assert sum(isinstance(event, StepFinished) for event in events) >= _NUM_STEPS - 1
    if how == "ctrl-c":
        assert ended.trace.complete, ended.trace.problem


# ---- what is left ------------------------------------------------------------------------------------------------


def shared_memory() -> set[str]:
    """Names of the shared memory that there is."""
    root = Path("/dev/shm")
    return {path.name for path in root.iterdir()} if root.is_dir() else set()


def assert_nothing_left(ended: Ended, shared_before: set[str]) -> None:
    """No process that it started lives on, and no shared memory that nobody uses."""
    assert not _processes_of_session(ended.pid)
    new = shared_memory() - shared_before
    maps = [_text_of(path) for path in Path("/proc").glob("[0-9]*/maps")] if new else []
    assert not [name for name in new if not any(f"/dev/shm/{name}" in text for text in maps)]


def _processes_of_session(session: int) -> list[int]:
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _session_of(pid) == session]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):  # it has ended meanwhile, or is none of ours
        return None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
