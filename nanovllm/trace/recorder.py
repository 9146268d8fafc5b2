"""Where events go: into a list, or to several listeners at once."""

from __future__ import annotations

from nanovllm.trace.events import AnyEvent, Emit


class Recorder:
    """Keeps all events in memory: hand ``recorder.emit`` to the engine, read ``recorder.events``."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.emit: Emit = self.events.append


def tee(*emits: Emit) -> Emit:
    """One listener that passes each event on to all of ``emits``, in their order."""

    def emit(event: AnyEvent) -> None:
        for listener in emits:
            listener(event)

    return emit
