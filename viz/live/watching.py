"""Plays a trace back: the same screen and keys as for a run that is going on."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console

from nanovllm.trace.jsonl import Trace
from viz.live.keys import open_keyboard
from viz.live.plain import print_lines
from viz.live.player import LINGER_WITHOUT_KEYS_S, USUAL_SPEED, Player
from viz.live.session import Session
from viz.live.source import GrowingTraceSource, Source, TraceSource
from viz.live.terminal import exits_in_order, is_screen


def watch(
    trace: Trace, *, speed_steps_per_s: int = USUAL_SPEED, follow: bool = False, stream: TextIO | None = None
) -> None:
    """Play a trace back until the reader leaves; where nobody can press keys, until its end.

    ``follow``: its file may be growing: begin at its end and show what comes. On anything but a terminal, plain lines
    are written, as fast as they can be.
    """
    stream = sys.stdout if stream is None else stream
    source: Source = GrowingTraceSource(trace.path) if follow else TraceSource(trace)
    if not is_screen(stream):
        print_lines(source, stream, _sleep)
        return
    keyboard = open_keyboard(sys.stdin)
    linger_s = None if keyboard.has_keys else LINGER_WITHOUT_KEYS_S
    player = Player(speed=None if follow else speed_steps_per_s, linger_s=linger_s)
    with exits_in_order():
        Session(source, Console(file=stream), keyboard, player).run()


def _sleep(duration_s: float) -> bool:
    time.sleep(duration_s)
    return False
