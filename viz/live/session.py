"""Shows a run or a trace on a terminal: takes in events, listens to keys, draws."""

from __future__ import annotations

import time

from rich.console import Console

from viz.live.history import History
from viz.live.keys import Keyboard
from viz.live.pace import REFRESH_INTERVAL_S, Pace
from viz.live.player import Key, Player
from viz.live.screen import Scene, Screen, why_too_small
from viz.live.source import Source
from viz.live.terminal import alternate_screen, fit
from viz.live.theme import Theme

_BATCH_EVENTS = 64


class Session:
    """One stay on the screen. ``max_events``: so many the history remembers."""

    def __init__(
        self,
        source: Source,
        console: Console,
        keyboard: Keyboard,
        player: Player,
        max_events: int | None = None,
    ) -> None:
        self.player = player
        self.history = History(source.name, max_events)
        self._source = source
        self._console = console
        self._keyboard = keyboard
        self._theme = Theme.of(console)
        self._pace = Pace(source)
        self._is_closed = False

    @property
    def problem(self) -> str | None:
        """Why nothing is to be seen, if that is so."""
        return why_too_small(*self._console.size)

    def close(self) -> None:
        """End ``run``, from another thread."""
        self._is_closed = True
        self._keyboard.wake()

    def run(self) -> None:
        """Returns when a key, the end of the run, or ``close`` ends the session; the terminal is as before then."""
        with self._keyboard, alternate_screen(self._console) as live:
            shown: object = None
            now_s = drawn_s = time.monotonic()
            wait_s = 0.0
            while not (self._is_closed or self.player.is_closed):
                keys = self._keyboard.read(wait_s)
                self._pace.begin()
                fit(self._console)
                self._take_in()
                last_s, now_s = now_s, time.monotonic()
                self._move(keys, now_s - last_s)
                view = self._view()
                if view != shown and (shown is None or now_s - drawn_s >= REFRESH_INTERVAL_S):
                    live.update(Screen(self._scene(), self._theme), refresh=True)
                    shown, drawn_s = view, now_s
                wait_s = self._wait_s(view != shown, time.monotonic() - drawn_s)

    def _take_in(self) -> None:
        """As much as there is time for; if that is not all, up to the end of a step."""
        while self._pace.has_time and (events := self._source.take(_BATCH_EVENTS)):
            for event in events:
                self.history.append(event)
        while self.history.newest.is_frame_open and (events := self._source.take(1)):
            self.history.append(events[0])

    def _move(self, keys: list[Key], elapsed_s: float) -> None:
        if self.history.last < 0:
            is_closed = Key.QUIT in keys or not self._source.is_growing
            self.player = Player(is_closed=is_closed, speed=self.player.speed, linger_s=self.player.linger_s)
            return
        is_growing = self._source.is_growing
        self.player = self.player.tick(elapsed_s, self.history, is_growing=is_growing)
        for key in keys:
            self.player = self.player.press(key, self.history, is_growing=is_growing)

    def _scene(self) -> Scene:
        problem = self.history.problem or self._source.problem
        source = self._source
        return Scene(self.history, self.player, source.is_growing, source.num_pending, source.newest_step, problem)

    def _view(self) -> object:
        """What the screen depends on: while it stays equal, there is nothing to draw."""
        player, linger_s = self.player, self.player.linger_s
        place = player.frame, player.speed, player.is_paused, player.notice, linger_s and round(linger_s)
        source = self._source
        run = self.history.num_events, source.newest_step, source.is_growing, source.problem
        return place, run, self._console.size

    def _wait_s(self, is_to_be_drawn: bool, since_drawn_s: float) -> float:
        until_due_s = max(0.0, REFRESH_INTERVAL_S - since_drawn_s)
        if is_to_be_drawn:
            return until_due_s
        if self._source.num_pending and not self._pace.rest_s():
            return 0.0
        return max(REFRESH_INTERVAL_S, self._pace.rest_s())
