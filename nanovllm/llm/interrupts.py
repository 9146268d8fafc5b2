"""Ctrl-C at the right moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C wait until the block is left, so that it never falls between two changes that belong together.

    A second Ctrl-C does not wait. Nothing happens outside the main thread, which is the one that Python interrupts,
    or where someone else handles the signal.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    was_interrupted = False

    def remember(_number: int, _frame: FrameType | None) -> None:
        nonlocal was_interrupted
        was_interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if was_interrupted:
        raise KeyboardInterrupt
