"""Listeners in memory."""

from __future__ import annotations

from nanovllm.trace.events import AnyEvent, Held
from nanovllm.trace.recorder import Recorder, tee


def test_a_recorder_keeps_events_in_order() -> None:
    recorder = Recorder()
    events: list[AnyEvent] = [Held("a", "no_slot"), Held("b", "no_slot")]
    for event in events:
        recorder.emit(event)
    assert recorder.events == events


def test_tee_tells_each_listener_in_order() -> None:
    heard: list[str] = []
    emit = tee(lambda event: heard.append(f"first {event.request}"), lambda event: heard.append("second"))
    emit(Held("a", "no_slot"))
    assert heard == ["first a", "second"]
