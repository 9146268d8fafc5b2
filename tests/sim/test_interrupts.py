"""Processes that are started beside the first one never answer a Ctrl-C with a traceback."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from sim.interrupts import end_on_interrupt, starting_processes
from sim.sweeps import executors
from tests.sim.sweeps.small import small_sweep

SHOW_MASK = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
INTERRUPT_ITSELF = "; import os; os.kill(os.getpid(), signal.SIGINT); print('goes on')"


def test_an_interrupt_does_not_reach_a_process_from_its_first_instruction() -> None:
    with starting_processes():
        process = subprocess.run([sys.executable, "-c", SHOW_MASK + INTERRUPT_ITSELF], capture_output=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"True\ngoes on\n", b"")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_one_that_may_end_ends_without_a_word() -> None:
    script = f"from sim.interrupts import {end_on_interrupt.__name__} as end; end(); {SHOW_MASK}{INTERRUPT_ITSELF}"
    with starting_processes():
        process = subprocess.run([sys.executable, "-u", "-c", script], capture_output=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (-signal.SIGINT, b"False\n", b"")


@pytest.mark.parametrize(
    "begin", ["from sim.interrupts import end_with", "from sim.prefix_reuse.measure import _begin"]
)
def test_a_process_ends_with_the_one_that_is_killed(begin: str) -> None:
    child = f"import signal, sys; {begin} as begin; begin(int(sys.argv[1])); print(flush=True); signal.pause()"
    parent = (
        "import os, signal, subprocess, sys\n"
        f"process = subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())], stdout=subprocess.PIPE)\n"
        "process.stdout.readline()\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    told = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, check=False)
    try:
        descriptor = os.pidfd_open(int(told.stdout))
    except ProcessLookupError:
        return
    assert select.select([descriptor], [], [], 60)[0], "the process goes on"
    os.close(descriptor)


def test_the_processes_of_a_pool_are_started_so() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        with starting_processes():
            mask = executor.submit(signal.pthread_sigmask, signal.SIG_BLOCK, [])
        assert signal.SIGINT in mask.result()


def test_the_processes_of_a_sweep_are_started_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("joblib", reason="needs the extra sweep")

    def mask(_directory: str, _cell: object) -> dict[str, bool]:
        import signal

        return {"is_blocked": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])}

    monkeypatch.setattr(executors, "_run_in", mask)
    rows = list(executors.in_processes(small_sweep().cells(), 2))
    assert rows == [{"is_blocked": True}] * 6
