"""The live view of a run: in a thread of its own, so that the run goes on whatever becomes of the view."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from nanovllm.trace.events import Emit
from viz.live.keys import Keyboard, open_keyboard
from viz.live.plain import print_lines
from viz.live.player import LINGER_S, LINGER_WITHOUT_KEYS_S, Player
from viz.live.session import Session
from viz.live.source import RunSource
from viz.live.terminal import exits_in_order, is_screen

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_EVENTS = 300_000
"""So many events of a run one can go back; all of a trace."""
MAX_PENDING_EVENTS = 50_000
"""So far a run may be ahead of the screen. A real one never is; a simulation is after some thousand steps."""


class LiveView:
    """Shows what an engine does while it runs. A context manager around the run; ``emit`` is its listener.

    On a terminal it fills the screen, anywhere else it writes plain lines. Events may come before the context is
    entered: they are kept. When the run is over the view stays for a moment, or as long as its reader wants.

    Nothing that happens to the view touches the run; ``problem`` says afterwards, in one sentence, what it was.
    """

    def __init__(self, stream: TextIO | None = None, keyboard: Keyboard | None = None) -> None:
        """``stream``: where to show it, standard output by default; ``keyboard``: that of standard input."""
        self.problem: str | None = None
        self._stream = sys.stdout if stream is None else stream
        self._is_screen = is_screen(self._stream)
        self._source = RunSource(MAX_PENDING_EVENTS if self._is_screen else None)
        self.emit: Emit = self._source.emit
        self._keyboard = keyboard
        self._session: Session | None = None
        self._is_unwanted = threading.Event()
        self._thread = threading.Thread(target=self._show, name="live-view", daemon=True)
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        if self._is_screen:
            keyboard = self._keyboard or open_keyboard(sys.stdin)
            player = Player(linger_s=LINGER_S if keyboard.has_keys else LINGER_WITHOUT_KEYS_S)
            self._session = Session(self._source, Console(file=self._stream), keyboard, player, MAX_EVENTS)
            self._resources.enter_context(exits_in_order())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._resources:
            if error is not None:
                self.leave_screen()
            self._source.finish()
            try:
                self._thread.join()
            except KeyboardInterrupt:  # the run is over: this means the view
                self._is_unwanted.set()
                self.leave_screen()
                self._thread.join()

    def leave_screen(self) -> None:
        """Give the terminal back at once; the run may go on. (Lines are written to the end: they take no room.)"""
        if self._session is not None:
            self._session.close()

    def _show(self) -> None:
        try:
            if self._session is None:
                print_lines(self._source, self._stream, self._is_unwanted.wait)
            else:
                self._session.run()
                self.problem = self._session.problem
                if self._session.player.is_closed and self._source.is_running:
                    self._stream.write("The view is closed, the run goes on; Ctrl-C ends it.\n")
                    self._stream.flush()
        except Exception as error:
            self.problem = f"the live view has failed, the run went on without it: {_describe(error)}"
        self._source.discard()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
