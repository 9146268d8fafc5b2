"""How processes end that a simulation is spread over: with the first one, which alone answers a Ctrl-C, though all of
them get it from the terminal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def starting_processes() -> Iterator[None]:
    """Start processes that no Ctrl-C reaches, not even before they can say what becomes of it: what is blocked here
    is blocked there from the first instruction on."""
    resource_tracker.ensure_running()  # comes with the first process of a pool, and would lift what is blocked here
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_interrupt() -> None:
    """Let a process that was started so end at a Ctrl-C after all, without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with(parent: int) -> None:
    """Let this process end with the one that asked for it, however that ends. ``parent``: its process id."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
