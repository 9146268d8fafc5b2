"""Listeners in memory."""

from __future__ import annotations

from nanovllm.trace.events import AnyEvent, Held
from nanovllm.trace.recorder import Batches, Recorder, tee


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


def test_batches_are_passed_on_to_all_at_once() -> None:
    heard: list[list[AnyEvent]] = []
    batches = Batches([heard.append, heard.append])
    events: list[AnyEvent] = [Held(name, "no_slot") for name in "abc"]
    for event in events:
        batches.emit(event)
        if len(batches) == 2:
            batches.pass_on()
    assert heard == [events[:2]] * 2
    batches.pass_on()
    assert len(batches) == 0
    assert heard == [events[:2]] * 2 + [events[2:]] * 2
