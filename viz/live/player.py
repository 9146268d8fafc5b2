"""Where in a run the screen stands, and what keys and time do to it: pure values, no terminal and no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

from viz.live.follower import Landmark

SPEEDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""In steps per second. While a run goes on there is one more at the top: as it happens."""
USUAL_SPEED = 10
MANY_FRAMES = 10
LINGER_S, LINGER_WITHOUT_KEYS_S = 5.0, 0.5
"""So long the end of a run is shown, unless a key is pressed; where there are no keys, long enough to be drawn."""


class Key(Enum):
    """What a reader can ask for."""

    PAUSE = auto()
    FORWARD = auto()
    BACK = auto()
    FORWARD_MANY = auto()
    BACK_MANY = auto()
    FIRST = auto()
    LAST = auto()
    FASTER = auto()
    SLOWER = auto()
    NEXT_PREEMPTION = auto()
    LAST_PREEMPTION = auto()
    NEXT_HIT = auto()
    LAST_HIT = auto()
    NEXT_CHUNK = auto()
    LAST_CHUNK = auto()
    QUIT = auto()


_MOVES = {Key.FORWARD: 1, Key.BACK: -1, Key.FORWARD_MANY: MANY_FRAMES, Key.BACK_MANY: -MANY_FRAMES}
_JUMPS = {
    Key.NEXT_PREEMPTION: (Landmark.PREEMPTION, 1),
    Key.LAST_PREEMPTION: (Landmark.PREEMPTION, -1),
    Key.NEXT_HIT: (Landmark.HIT, 1),
    Key.LAST_HIT: (Landmark.HIT, -1),
    Key.NEXT_CHUNK: (Landmark.CHUNK, 1),
    Key.LAST_CHUNK: (Landmark.CHUNK, -1),
}
_NAMES = {Landmark.PREEMPTION: "preemption", Landmark.HIT: "prefix hit", Landmark.CHUNK: "chunk"}


class Frames(Protocol):
    """What there is to move about in: frames ``first`` to ``last``."""

    @property
    def first(self) -> int:
        """The oldest frame."""

    @property
    def last(self) -> int:
        """The newest one, at least ``first``."""

    def find(self, landmark: Landmark, frame: int, direction: int) -> int | None:
        """See ``History.find``."""


@dataclass(frozen=True)
class Player:
    """Shows one frame and goes on from there. Keys and time make a new one of it."""

    frame: int = 0
    speed: int | None = None
    """Steps per second; None: as it happens, the newest frame."""
    is_paused: bool = False
    is_closed: bool = False
    notice: str = ""
    """What became of the last key, if there is something to say."""
    fraction: float = 0.0
    """Of a step, that time has brought but not shown yet."""
    linger_s: float | None = LINGER_S
    """How much longer the end of a run is shown; None: until it is closed by a key."""
    is_at_end: bool = False
    """Whether that time has begun."""

    def press(self, key: Key, frames: Frames, *, is_growing: bool) -> Player:
        """After a key. ``is_growing``: more frames are to come."""
        player = replace(self, notice="", linger_s=None, fraction=0.0)
        if player.speed is None and not is_growing:
            player = replace(player, speed=USUAL_SPEED)
        match key:
            case Key.QUIT:
                return replace(player, is_closed=True)
            case Key.PAUSE:
                return player._pause(frames, is_growing)
            case Key.FASTER | Key.SLOWER:
                return player._change_speed(1 if key is Key.FASTER else -1, is_growing)
            case Key.FIRST:
                return replace(player, frame=frames.first, is_paused=True)
            case Key.LAST:
                speed = None if is_growing else player.speed
                return replace(player, frame=frames.last, is_paused=not is_growing, speed=speed)
            case _ if key in _MOVES:
                return player._move(_MOVES[key], frames)
        return player._jump(*_JUMPS[key], frames)

    def tick(self, elapsed_s: float, frames: Frames, *, is_growing: bool) -> Player:
        """After some time."""
        frame = max(frames.first, min(self.frame, frames.last))
        if self.is_paused:
            return self if frame == self.frame else replace(self, frame=frame, notice="older steps are forgotten")
        if self.speed is None:
            player = replace(self, frame=frames.last)
        else:
            num_frames, fraction = divmod(self.fraction + self.speed * elapsed_s, 1)
            player = replace(self, frame=min(frame + int(num_frames), frames.last), fraction=fraction)
        if is_growing or player.frame < frames.last:
            return player
        if player.linger_s is None:
            return replace(player, is_paused=True, fraction=0.0)
        linger_s = player.linger_s - (elapsed_s if self.is_at_end else 0.0)
        return replace(player, linger_s=linger_s, is_at_end=True, is_closed=linger_s <= 0)

    def _pause(self, frames: Frames, is_growing: bool) -> Player:
        is_at_end = not is_growing and self.frame >= frames.last
        if self.is_paused and is_at_end:
            return replace(self, frame=frames.first, is_paused=False)
        return replace(self, is_paused=not self.is_paused)

    def _change_speed(self, by: int, is_growing: bool) -> Player:
        if self.speed is None:
            return self if by > 0 else replace(self, speed=USUAL_SPEED)
        faster = [speed for speed in SPEEDS if speed > self.speed]
        slower = [speed for speed in SPEEDS if speed < self.speed]
        if by < 0:
            return replace(self, speed=slower[-1]) if slower else self
        if faster:
            return replace(self, speed=faster[0])
        return replace(self, speed=None) if is_growing else self

    def _move(self, num_frames: int, frames: Frames) -> Player:
        frame = max(frames.first, min(self.frame + num_frames, frames.last))
        notice = "" if frame != self.frame else f"there is no {'later' if num_frames > 0 else 'earlier'} step"
        return replace(self, frame=frame, is_paused=True, notice=notice)

    def _jump(self, landmark: Landmark, direction: int, frames: Frames) -> Player:
        frame = frames.find(landmark, self.frame, direction)
        if frame is None:
            where = "after" if direction > 0 else "before"
            return replace(self, is_paused=True, notice=f"there is no {_NAMES[landmark]} {where} this step")
        return replace(self, frame=frame, is_paused=True)
