"""The terminal: when a view may have it, and that it gets it back as it was."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from rich.console import Console, ConsoleDimensions
from rich.live import Live


def is_screen(stream: TextIO) -> bool:
    """Whether a stream is a terminal that a view can fill, and this process is no background job of it."""
    console = Console(file=stream)
    if not stream.isatty() or not console.is_terminal or console.is_dumb_terminal:
        return False
    with suppress(OSError, AttributeError):  # no controlling terminal; Windows
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    return True


def fit(console: Console) -> None:
    """Make a console as large as its terminal is now: by itself, it looks at the process's own streams only."""
    with suppress(OSError):
        console.size = ConsoleDimensions(*os.get_terminal_size(console.file.fileno()))


@contextmanager
def alternate_screen(console: Console) -> Iterator[Live]:
    """A screen of its own to draw on; what was there before is there afterwards."""
    with (
        _held_errors(),
        Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
    ):
        yield live


@contextmanager
def _held_errors() -> Iterator[None]:
    """What is written to standard error, if that is a terminal, waits until the screen is free."""
    usual = sys.stderr
    if not usual.isatty():
        yield
        return
    held = io.StringIO()
    sys.stderr = held
    try:
        yield
    finally:
        sys.stderr = usual
        usual.write(held.getvalue())
        usual.flush()


@contextmanager
def exits_in_order() -> Iterator[None]:
    """Let a SIGTERM end the process as ``sys.exit`` does, so that the terminal gets back what it had."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
