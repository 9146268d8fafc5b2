"""The keyboard: bytes into keys, and a terminal that hands them over one by one."""

from __future__ import annotations

import os
import re
import select
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from viz.live.player import Key

if TYPE_CHECKING:
    from typing_extensions import Self

_NAMES = {
    b" ": Key.PAUSE,
    b".": Key.FORWARD,
    b",": Key.BACK,
    b">": Key.FORWARD_MANY,
    b"<": Key.BACK_MANY,
    b"+": Key.FASTER,
    b"=": Key.FASTER,
    b"-": Key.SLOWER,
    b"p": Key.NEXT_PREEMPTION,
    b"P": Key.LAST_PREEMPTION,
    b"h": Key.NEXT_HIT,
    b"H": Key.LAST_HIT,
    b"c": Key.NEXT_CHUNK,
    b"C": Key.LAST_CHUNK,
    b"q": Key.QUIT,
    b"Q": Key.QUIT,
    b"\x1b[C": Key.FORWARD,
    b"\x1bOC": Key.FORWARD,
    b"\x1b[D": Key.BACK,
    b"\x1bOD": Key.BACK,
    b"\x1b[A": Key.FASTER,
    b"\x1bOA": Key.FASTER,
    b"\x1b[B": Key.SLOWER,
    b"\x1bOB": Key.SLOWER,
    b"\x1b[6~": Key.FORWARD_MANY,
    b"\x1b[5~": Key.BACK_MANY,
    b"\x1b[H": Key.FIRST,
    b"\x1bOH": Key.FIRST,
    b"\x1b[1~": Key.FIRST,
    b"\x1b[F": Key.LAST,
    b"\x1bOF": Key.LAST,
    b"\x1b[4~": Key.LAST,
}
_PRESS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
"""An escape sequence, known or not, or a single byte."""
_BEGINNING = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?$")
"""An escape sequence of which more may come."""


def decode(data: bytes) -> tuple[list[Key], bytes]:
    """The keys in what a terminal sent, and the end of it that may be the beginning of another key."""
    beginning = _BEGINNING.search(data)
    rest = beginning.group() if beginning else b""
    presses = _PRESS.findall(data[: len(data) - len(rest)])
    return [_NAMES[press] for press in presses if press in _NAMES], rest


class Keyboard(Protocol):
    """Where keys come from. A context manager."""

    has_keys: bool
    """False: there never will be any."""

    def read(self, timeout_s: float) -> list[Key]:
        """Keys pressed since the last call; waits for one, at most so long."""

    def wake(self) -> None:
        """Let ``read``, running in another thread, return at once; from now on it always does."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""


class NoKeyboard:
    """For where nobody can press a key."""

    has_keys = False

    def __init__(self) -> None:
        self._woken = threading.Event()

    def read(self, timeout_s: float) -> list[Key]:
        """See ``Keyboard``."""
        self._woken.wait(timeout_s)
        return []

    def wake(self) -> None:
        """See ``Keyboard``."""
        self._woken.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


class TerminalKeyboard:
    """A terminal that hands over each key at once, without showing it; as before when the context is left.

    Ctrl-C still interrupts. Ctrl-Z is out of force: it would leave the screen to the shell as it is.
    """

    has_keys = True

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = b""
        self._wake_lock = threading.Lock()
        self._wake_pipe: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        import termios

        self._wake_pipe = os.pipe()
        self._usual = termios.tcgetattr(self._fd)
        raw = termios.tcgetattr(self._fd)
        raw[3] &= ~(termios.ICANON | termios.ECHO)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        raw[6][termios.VSUSP] = bytes([os.fpathconf(self._fd, "PC_VDISABLE")])
        termios.tcsetattr(self._fd, termios.TCSANOW, raw)
        return self

    def __exit__(self, *_error: object) -> None:
        import termios

        with self._wake_lock:
            pipe, self._wake_pipe = self._wake_pipe, None
        for fd in pipe or ():
            os.close(fd)
        termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._usual)

    def read(self, timeout_s: float) -> list[Key]:
        """See ``Keyboard``."""
        assert self._wake_pipe is not None, "keys are read within the context"
        ready, _, _ = select.select([self._fd, self._wake_pipe[0]], [], [], timeout_s)
        if self._fd not in ready:
            return []
        data = os.read(self._fd, 1024)
        if not data:
            return [Key.QUIT]  # the terminal is gone
        keys, self._pending = decode(self._pending + data)
        return keys

    def wake(self) -> None:
        """See ``Keyboard``."""
        with self._wake_lock:
            if self._wake_pipe is not None:
                os.write(self._wake_pipe[1], b"\0")


def open_keyboard(stream: TextIO) -> Keyboard:
    """That of an input stream, if it is a terminal that tells of single keys."""
    try:
        import termios  # noqa: F401 - Windows has none
    except ImportError:
        return NoKeyboard()
    return TerminalKeyboard(stream.fileno()) if stream.isatty() else NoKeyboard()
