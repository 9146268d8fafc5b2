"""Ctrl-C, or a SIGTERM, ends a run: what there is so far is printed, the trace can be read, the exit code is 130."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.metrics import compute_metrics

# Even if this process was told to ignore a SIGINT, that one shall hear it.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from nanovllm.cli.__main__ import run
sys.exit(run())
"""


def interrupt(trace: Path, *arguments: object, by: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
    """Run ``nanovllm`` and send it a signal as soon as its trace tells of a step. Returns exit code, output, errors.

    It writes the trace into a pipe, which wakes this process up when something comes; what came is in ``trace`` then.
    """
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, arguments), "--trace", f"/dev/fd/{writer}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[writer],
    )
    os.close(writer)
    with process, os.fdopen(reader, "rb") as pipe, trace.open("wb") as file:
        for line in pipe:
            file.write(line)
            if b"step_finished" in line:
                process.send_signal(by)
                break
        file.write(pipe.read())
        out, err = process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_simulation(by: signal.Signals, tmp_path: Path) -> None:
    load, trace = tmp_path / "load.jsonl", tmp_path / "trace.jsonl"
    # It would take minutes.
    load.write_text(
        "".join(f'{{"id": {i}, "prompt_len": 20, "max_tokens": 3000, "arrival": {i}}}\n' for i in range(9999))
    )
    code, out, err = interrupt(trace, "simulate", load, "--json", by=by)
    assert (code, err) == (130, "note: interrupted: the figures are those of the run up to here\n")
    told = json.loads(out)
    assert told["complete"] is False
    events = read_trace(trace).events
    assert told["metrics"] == json.loads(json.dumps(compute_metrics(events).to_dict()))
    assert told["metrics"]["num_steps"] > 0


@pytest.mark.parametrize(
    ("how", "by"), [("at once", signal.SIGINT), ("streamed", signal.SIGINT), ("at once", signal.SIGTERM)]
)
def test_a_generation(how: str, by: signal.Signals, model_path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    words = ["fox", "dog", "--max-tokens", 400, "--ignore-eos", "--device", "cpu", "--kvcache-block-size", 16, "--json"]
    words += ["--stream"] if how == "streamed" else []
    code, out, err = interrupt(trace, "generate", *words, "--model", model_path, by=by)
    assert code == 130
    assert err.endswith("note: interrupted: 0 of 2 requests are finished\n")
    rows = [json.loads(line) for line in out.splitlines()]
    if how == "at once":
        assert [row["finish_reason"] for row in rows] == ["aborted", "aborted"]
    assert read_trace(trace).complete
