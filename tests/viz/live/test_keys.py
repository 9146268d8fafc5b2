"""What a terminal sends, as keys; and the terminal afterwards."""

from __future__ import annotations

import os
import pty
import termios
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from viz.live.keys import _NAMES, NoKeyboard, TerminalKeyboard, decode, open_keyboard
from viz.live.player import Key


def test_letters_arrows_and_what_is_neither() -> None:
    assert decode(b" q") == ([Key.PAUSE, Key.QUIT], b"")
    assert decode(b"\x1b[C\x1b[D\x1bOC") == ([Key.FORWARD, Key.BACK, Key.FORWARD], b"")
    assert decode(b"\x1b[5~pP\x1b[F") == ([Key.BACK_MANY, Key.NEXT_PREEMPTION, Key.LAST_PREEMPTION, Key.LAST], b"")
    assert decode(b"\x1b[15;2~\x1b[<35;1Mz\xff\x00") == ([], b""), "unknown sequences are no letters"
    assert decode(b"\x1bq") == ([Key.QUIT], b""), "a lone escape is no key"


@given(st.lists(st.sampled_from(list(_NAMES)), max_size=8), st.data())
def test_it_does_not_matter_in_which_pieces_keys_come(presses: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(presses)
    cut = data.draw(st.integers(0, len(sent)))
    first, rest = decode(sent[:cut])
    second, left = decode(rest + sent[cut:])
    assert [*first, *second] == [_NAMES[press] for press in presses]
    assert left == b""


@given(st.binary(max_size=40))
def test_any_bytes_do(sent: bytes) -> None:
    keys, rest = decode(sent)
    assert all(isinstance(key, Key) for key in keys)
    assert sent.endswith(rest)


def test_the_terminal_is_as_before_when_the_keyboard_is_closed() -> None:
    master, slave = pty.openpty()
    usual = termios.tcgetattr(slave)
    with TerminalKeyboard(slave) as keyboard:
        assert not termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO)
        assert termios.tcgetattr(slave)[3] & termios.ISIG, "Ctrl-C still interrupts"
        os.write(master, b"\x1b[")
        assert keyboard.read(10.0) == []
        os.write(master, b"Cq")
        assert keyboard.read(10.0) == [Key.FORWARD, Key.QUIT]
        assert keyboard.read(0.0) == []
        keyboard.wake()
        assert keyboard.read(10.0) == []
    keyboard.wake()
    assert termios.tcgetattr(slave) == usual
    os.close(master)
    os.close(slave)


def test_a_terminal_that_is_gone_ends_the_view() -> None:
    reader, writer = os.pipe()
    keyboard = TerminalKeyboard(reader)
    keyboard._wake_pipe = wake = os.pipe()
    os.close(writer)
    assert keyboard.read(10.0) == [Key.QUIT]
    for fd in (reader, *wake):
        os.close(fd)


def test_where_there_is_no_terminal_there_are_no_keys(tmp_path: Path) -> None:
    (tmp_path / "input").touch()
    with (tmp_path / "input").open() as stream, open_keyboard(stream) as keyboard:
        assert isinstance(keyboard, NoKeyboard)
        keyboard.wake()
        assert keyboard.read(10.0) == []
    master, slave = pty.openpty()
    with os.fdopen(slave) as stream:
        assert isinstance(open_keyboard(stream), TerminalKeyboard)
    os.close(master)


@pytest.mark.parametrize("key", list(Key))
def test_every_key_can_be_pressed(key: Key) -> None:
    assert key in _NAMES.values()
