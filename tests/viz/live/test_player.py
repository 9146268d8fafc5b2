"""Keys and time move through a run; no terminal is needed for that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, strategies as st

from viz.live.follower import Landmark
from viz.live.player import LINGER_S, MANY_FRAMES, SPEEDS, USUAL_SPEED, Key, Player


@dataclass
class Frames:
    first: int = 0
    last: int = 99
    landmarks: dict[int, Landmark] = field(default_factory=dict)

    def find(self, landmark: Landmark, frame: int, direction: int) -> int | None:
        found = [f for f, marks in self.landmarks.items() if landmark in marks and (f - frame) * direction > 0]
        return min(found, key=lambda f: abs(f - frame), default=None)


KEYS = st.sampled_from(list(Key))
PLAYERS = st.builds(
    Player,
    frame=st.integers(1, 98),
    speed=st.sampled_from([None, *SPEEDS]),
    is_paused=st.booleans(),
    linger_s=st.sampled_from([None, LINGER_S]),
)


def press(player: Player, *keys: Key, frames: Frames | None = None, is_growing: bool = False) -> Player:
    for key in keys:
        player = player.press(key, frames or Frames(), is_growing=is_growing)
    return player


@given(PLAYERS, st.sampled_from([(Key.FORWARD, Key.BACK), (Key.BACK, Key.FORWARD)]), st.booleans())
def test_a_step_on_and_a_step_back_lead_to_where_one_was(
    player: Player, keys: tuple[Key, Key], is_growing: bool
) -> None:
    paused = press(player, *keys, is_growing=is_growing)
    assert press(paused, *keys, is_growing=is_growing) == paused


@given(st.lists(st.one_of(KEYS, st.floats(0, 5)), max_size=30), st.booleans(), st.integers(0, 5), st.integers(5, 20))
def test_the_frame_stays_within_the_run(moves: list[Key | float], is_growing: bool, first: int, last: int) -> None:
    frames, player = Frames(first, last, {5: Landmark.HIT}), Player(frame=first)
    for move in moves:
        if isinstance(move, Key):
            player = player.press(move, frames, is_growing=is_growing)
        else:
            player = player.tick(move, frames, is_growing=is_growing)
        assert first <= player.frame <= last


def test_time_moves_at_the_speed_that_was_chosen() -> None:
    player = Player(speed=10)
    for _ in range(10):
        player = player.tick(0.05, Frames(), is_growing=True)
    assert player.frame == 5
    assert replace(player, is_paused=True).tick(1.0, Frames(), is_growing=True).frame == 5


def test_a_live_run_is_followed() -> None:
    player = Player()
    for last in (0, 3, 3, 50):
        player = player.tick(0.1, Frames(last=last), is_growing=True)
        assert player.frame == last
    paused = press(player, Key.PAUSE, is_growing=True)
    assert paused.tick(0.1, Frames(last=80), is_growing=True).frame == 50
    resumed = press(paused, Key.PAUSE, is_growing=True)
    assert resumed.tick(0.1, Frames(last=80), is_growing=True).frame == 80
    assert press(replace(paused, frame=3), Key.LAST, is_growing=True).tick(0.1, Frames(), is_growing=True).frame == 99


def test_speeds_go_up_to_as_it_happens_and_down_again() -> None:
    slower = press(Player(), Key.SLOWER, is_growing=True)
    assert slower.speed == USUAL_SPEED
    assert press(slower, *[Key.SLOWER] * 20, is_growing=True).speed == SPEEDS[0]
    assert press(slower, *[Key.FASTER] * 20, is_growing=True).speed is None
    assert press(slower, *[Key.FASTER] * 20, is_growing=False).speed == SPEEDS[-1]
    assert press(Player(speed=7), Key.FASTER).speed == 10
    assert press(Player(speed=7), Key.SLOWER).speed == 5


def test_jumps_pause_there_or_say_why_not() -> None:
    frames = Frames(landmarks={20: Landmark.HIT, 40: Landmark.PREEMPTION | Landmark.CHUNK})
    player = press(Player(frame=10, speed=10), Key.NEXT_PREEMPTION, frames=frames)
    assert (player.frame, player.is_paused) == (40, True)
    assert press(player, Key.LAST_HIT, frames=frames).frame == 20
    nowhere = press(player, Key.NEXT_CHUNK, frames=frames)
    assert (nowhere.frame, nowhere.notice) == (40, "there is no chunk after this step")
    assert press(nowhere, Key.BACK, frames=frames).notice == ""


def test_ten_steps_at_once_stop_at_the_ends() -> None:
    player = Player(frame=5, is_paused=True)
    assert press(player, Key.FORWARD_MANY).frame == 5 + MANY_FRAMES
    back = press(player, Key.BACK_MANY)
    assert back.frame == 0
    assert press(back, Key.BACK_MANY).notice == "there is no earlier step"
    assert press(player, Key.FIRST).frame == 0


def test_the_end_of_a_run_is_shown_for_a_moment_unless_a_key_keeps_it() -> None:
    player = Player().tick(0.1, Frames(), is_growing=False)
    assert not player.is_closed
    assert player.tick(LINGER_S, Frames(), is_growing=False).is_closed
    kept = press(player, Key.BACK)
    assert not kept.tick(100 * LINGER_S, Frames(), is_growing=False).is_closed
    again = press(press(kept, Key.LAST), Key.PAUSE)
    assert (again.frame, again.is_paused, again.speed) == (0, False, USUAL_SPEED), "space at the end: from the start"


def test_a_reader_who_paused_keeps_the_screen_when_the_run_ends() -> None:
    player = press(Player(frame=5), Key.PAUSE, is_growing=True)
    for _ in range(20):
        player = player.tick(LINGER_S, Frames(), is_growing=False)
    assert (player.is_closed, player.frame) == (False, 5)
    resumed = press(player, Key.PAUSE)
    assert resumed.speed == USUAL_SPEED
    ended = resumed.tick(1000.0, Frames(), is_growing=False)
    assert (ended.frame, ended.is_closed) == (99, False)


def test_forgotten_steps_are_left() -> None:
    player = Player(frame=3, is_paused=True).tick(0.1, Frames(first=10), is_growing=True)
    assert (player.frame, player.notice) == (10, "older steps are forgotten")


def test_quitting() -> None:
    assert press(Player(), Key.QUIT).is_closed
