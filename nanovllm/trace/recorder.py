"""Where events go: into a list, or to several listeners at once."""

from __future__ import annotations

from nanovllm.trace.events import AnyEvent, Emit


class Recorder:
    """Keeps all events in memory: hand ``recorder.emit`` to the engine, read ``recorder.events``."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.emit: Emit = self.events.append


def tee(*emits: Emit) -> Emit:
    """One listener that passes each event on to all of ``emits``, at least one, in their order."""
    first, *others = emits
    if not others:
        return first
    rest = tee(*others)

    def emit(event: AnyEvent) -> None:  # no loop: this is called for every event
        first(event)
        rest(event)

    return emit
