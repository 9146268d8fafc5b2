"""Ctrl-C at the right moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C wait until the block is left, so that it never falls between two changes that belong together; a
    SIGTERM too, where it is treated like one.

    A second one does not wait. Nothing happens outside the main thread, which is the one that Python interrupts, or
    where someone else handles the signal.
    """
    interrupting = [number for number in _SIGNALS if signal.getsignal(number) is signal.default_int_handler]
    if not interrupting or threading.current_thread() is not threading.main_thread():
        yield
        return
    was_interrupted = False

    def remember(_number: int, _frame: FrameType | None) -> None:
        nonlocal was_interrupted
        was_interrupted = True
        _handle(interrupting, signal.default_int_handler)

    _handle(interrupting, remember)
    try:
        yield
    finally:
        _handle(interrupting, signal.default_int_handler)
    if was_interrupted:
        raise KeyboardInterrupt


def _handle(numbers: list[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> None:
    for number in numbers:
        signal.signal(number, handler)
