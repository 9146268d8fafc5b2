"""Two clocks: one that is waited for, one that jumps."""

from __future__ import annotations

import time

import pytest

from nanovllm.engine.clock import VirtualClock, WallClock


def test_a_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock()
    assert [clock.now(), clock.now()] == [0.0, 0.0]
    clock.advance(1.5)
    clock.advance(0.0)
    assert clock.now() == 1.5
    clock.wait_until(4.0)
    assert clock.now() == 4.0
    clock.wait_until(2.0)  # it has been; time does not run backwards
    assert clock.now() == 4.0


def test_a_virtual_clock_refuses_to_run_backwards() -> None:
    with pytest.raises(AssertionError, match=r"time cannot run backwards by 0\.5 s"):
        VirtualClock().advance(-0.5)


def test_a_wall_clock_sleeps_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    time_s = 100.0
    slept: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: time_s)
    monkeypatch.setattr(time, "sleep", slept.append)
    clock = WallClock()
    assert clock.now() == 0.0
    time_s = 102.0
    assert clock.now() == 2.0
    clock.wait_until(2.0)
    clock.wait_until(1.0)
    assert slept == []
    clock.wait_until(2.5)
    assert slept == [0.5]
