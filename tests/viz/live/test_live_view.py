"""The view beside a run: on a terminal, in a pipe, and when it fails."""

from __future__ import annotations

import io
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from typing import TextIO

import pytest

from nanovllm.trace.events import AnyEvent, StepFinished
from nanovllm.trace.text import to_text
from tests.trace.runs import preempting_run
from tests.viz.web.traces import as_trace, tight_run
from viz.live import LiveView, session as session_module, watch, watching
from viz.live.keys import NoKeyboard
from viz.live.player import Key
from viz.live.screen import Screen

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"
Press = list[Key] | Callable[[], list[Key]]


class ScriptedKeyboard(NoKeyboard):
    """Presses one entry of its script each time it is asked; then the last key that is needed, or none."""

    has_keys = True

    def __init__(self, *script: Press) -> None:
        super().__init__()
        self._script = list(script)

    def read(self, timeout_s: float) -> list[Key]:
        if not self._script:
            return super().read(timeout_s)
        press = self._script.pop(0)
        return press() if callable(press) else press


class Terminal:
    """A pseudo-terminal, and all that was written to it."""

    def __init__(self, width: int, height: int) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self._output = bytearray()
        self._has_grown = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._master, 65536):
                with self._has_grown:
                    self._output += piece
                    self._has_grown.notify_all()
        except OSError:  # what Linux says when the other side is closed
            pass

    def wait_for(self, text: str) -> None:
        with self._has_grown:
            assert self._has_grown.wait_for(lambda: text.encode() in self._output, timeout=60), f"{text!r} never comes"

    @property
    def written(self) -> str:
        return self._output.decode(errors="replace")

    def close(self) -> None:
        self.stream.close()
        self._reader.join()
        os.close(self._master)


@pytest.fixture(autouse=True)
def known_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@contextmanager
def terminal(width: int = 80, height: int = 24) -> Iterator[Terminal]:
    opened = Terminal(width, height)
    try:
        yield opened
    finally:
        opened.close()


def show(events: list[AnyEvent], view: LiveView) -> None:
    with view:
        for event in events:
            view.emit(event)


def show_interrupted(events: list[AnyEvent], view: LiveView) -> None:
    with view:
        for event in events:
            view.emit(event)
        raise KeyboardInterrupt


# ---- on a terminal ---------------------------------------------------------------------------------------------------


def test_a_run_is_shown_to_its_end_on_a_screen_of_its_own() -> None:
    with terminal() as screen:
        view = LiveView(screen.stream)
        show(preempting_run(), view)
    assert view.problem is None
    assert screen.written.index(ENTER) < screen.written.index("what happened") < screen.written.rindex(LEAVE)
    assert SHOW_CURSOR in screen.written[screen.written.rindex("what happened") :]
    assert "the end" in screen.written


def test_events_before_the_context_are_kept() -> None:
    with terminal() as screen:
        view = LiveView(screen.stream)
        for event in preempting_run():
            view.emit(event)
        with view:
            pass
    assert "step 14 of 14" in screen.written


def test_quitting_ends_the_view_and_not_the_run() -> None:
    note = "The view is closed, the run goes on; Ctrl-C ends it."
    with terminal() as screen, LiveView(screen.stream, ScriptedKeyboard([], [Key.QUIT])) as view:
        for event in preempting_run()[:20]:
            view.emit(event)
        screen.wait_for(note)
        for event in preempting_run()[20:]:
            view.emit(event)
    assert view.problem is None
    assert note in screen.written[screen.written.rindex(LEAVE) :]


def test_a_reader_who_pauses_can_look_back_after_the_run() -> None:
    shown: list[int] = []

    def look(view: LiveView) -> Press:
        def note() -> list[Key]:
            assert view._session is not None
            shown.append(view._session.player.frame)
            return []

        return note

    with terminal() as screen:
        keyboard = ScriptedKeyboard()
        view = LiveView(screen.stream, keyboard)
        moves: list[Press] = [[Key.FIRST], look(view), [Key.NEXT_PREEMPTION], look(view), [Key.BACK], look(view)]
        keyboard._script = [*moves, [Key.QUIT]]
        for event in preempting_run():
            view.emit(event)
        view._source.finish()
        with view:
            pass
    assert shown == [0, 4, 3]


def test_a_run_that_fails_takes_its_view_along() -> None:
    with terminal() as screen:
        view = LiveView(screen.stream, ScriptedKeyboard())
        with pytest.raises(KeyboardInterrupt):
            show_interrupted(preempting_run()[:20], view)
    assert screen.written.rstrip().endswith(LEAVE)


def test_a_view_that_fails_leaves_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Screen:
        raise RuntimeError("no ink")

    monkeypatch.setattr(session_module, "Screen", fail)
    events: list[AnyEvent] = []
    with terminal() as screen:
        view = LiveView(screen.stream)
        with view:
            for event in preempting_run():
                view.emit(event)
                events.append(event)
    assert events == preempting_run()
    assert view.problem == "the live view has failed, the run went on without it: RuntimeError: no ink"
    assert LEAVE in screen.written
    assert SHOW_CURSOR in screen.written


def test_a_terminal_that_is_too_small_leaves_the_run_alone() -> None:
    with terminal(60, 20) as screen:
        view = LiveView(screen.stream)
        show(preempting_run(), view)
    assert view.problem == "the view needs 80×24, the terminal has 60×20"
    assert view.problem in screen.written


def test_what_goes_to_standard_error_meanwhile_comes_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as screen:
        monkeypatch.setattr(sys, "stderr", screen.stream)
        with LiveView(screen.stream, ScriptedKeyboard()) as view:
            for event in preempting_run():
                view.emit(event)
            screen.wait_for("what happened")
            sys.stderr.write("a warning")
            view.leave_screen()
        monkeypatch.undo()
    assert "a warning" in screen.written[screen.written.rindex(LEAVE) :]


# ---- anywhere else ---------------------------------------------------------------------------------------------------


def test_in_a_pipe_there_are_plain_lines() -> None:
    stream = io.StringIO()
    show(preempting_run(), LiveView(stream))
    assert stream.getvalue().splitlines() == list(to_text(preempting_run()))
    assert "\x1b" not in stream.getvalue()


def test_a_dumb_terminal_gets_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal() as screen:
        show(preempting_run(), LiveView(screen.stream))
    assert "\x1b" not in screen.written
    assert "step 4 decode" in screen.written


def test_lines_are_written_to_the_end_even_if_the_run_is_interrupted() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        show_interrupted(preempting_run(), LiveView(stream))
    assert stream.getvalue().splitlines() == list(to_text(preempting_run()))


def test_a_pipe_that_is_closed_leaves_the_run_alone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    view = LiveView(stream)
    show(preempting_run(), view)
    assert view.problem is not None
    assert "BrokenPipeError" in view.problem
    with pytest.raises(BrokenPipeError):
        stream.close()


# ---- traces ----------------------------------------------------------------------------------------------------------


def test_a_trace_is_played_to_its_end_where_nobody_can_press_keys() -> None:
    with terminal() as screen:
        watch(as_trace(tight_run()), speed_steps_per_s=5000, stream=screen.stream)
    assert "the end" in screen.written
    assert screen.written.rstrip().endswith(LEAVE)


def test_a_trace_that_was_cut_is_shown_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    events = tight_run()
    cut = next(i for i, event in enumerate(events) if i > 60 and isinstance(event, StepFinished))
    keyboard = ScriptedKeyboard([Key.LAST], [Key.QUIT])
    monkeypatch.setattr(watching, "open_keyboard", lambda _: keyboard)
    with terminal() as screen:
        watch(as_trace(events[:cut]), stream=screen.stream)
    assert "the trace is incomplete" in screen.written


def test_a_trace_in_a_pipe_is_a_listing() -> None:
    stream = io.StringIO()
    watch(as_trace(tight_run()), stream=stream)
    assert stream.getvalue().splitlines() == list(to_text(tight_run()))
