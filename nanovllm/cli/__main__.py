"""The process of the ``nanovllm`` command: its streams, signals and end. ``python -m nanovllm.cli`` is the same."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path


def run() -> int:
    """Run the command of this process; returns its exit code. A Ctrl-C never shows a traceback, whenever it comes."""
    _prepare_streams()
    # Threads that wait for each other spin, unless told otherwise before torch is loaded: on a machine that does other
    # work too, a step would take several times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends us politely shall lose no more than by Ctrl-C
    try:
        from nanovllm.cli.main import main

        return main()
    except KeyboardInterrupt:
        return 130  # as ``console.EXIT_INTERRUPTED``, which may not be loaded yet
    finally:
        # What is left to do is Python's; from here on a Ctrl-C simply ends the process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _prepare_streams() -> None:
    """Standard streams that were closed become empty ones; characters that a stream's encoding lacks become ``?``."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(run())
