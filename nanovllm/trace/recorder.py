"""Where events go: into a list, or to several listeners, at once or some thousand at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nanovllm.trace.events import AnyEvent, Emit

EmitAll = Callable[[list[AnyEvent]], object]
"""A listener that is called with several events, in order. It may not keep the list."""

BATCH_EVENTS = 1024
"""So many at a time: fewer cost more calls, more push what the engine works with out of the cache."""


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


class Batches:
    """Gathers events for listeners that take several at once: hand ``batches.emit`` to the engine, and call
    ``pass_on`` now and then, for the last time when the run is over. ``len`` tells how many wait."""

    def __init__(self, listeners: Iterable[EmitAll]) -> None:
        self._listeners = tuple(listeners)
        self._events: list[AnyEvent] = []
        self.emit: Emit = self._events.append

    def __len__(self) -> int:
        return len(self._events)

    def pass_on(self) -> None:
        """Hand over what there is. Whoever may be interrupted in it loses events."""
        events = self._events.copy()
        self._events.clear()  # first: whoever fails is not called with them again
        for listener in self._listeners:
            listener(events)
