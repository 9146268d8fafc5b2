"""Stop texts in a text that is still being written."""

from __future__ import annotations


class StopFinder:
    """Finds the stop text that is complete first; of several that end together, the one that begins first.

    So the result does not depend on the pieces in which the text arrives. Text that may turn out to be the beginning
    of a stop text is held back.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.found: str | None = None
        """The stop text that was found; nothing may be pushed after it."""
        self._stops = stops
        self._max_held = max(map(len, stops), default=1) - 1
        self._held = ""

    def push(self, text: str, tentative: str = "") -> str:
        """Take in the next piece. Returns the text that is certain to stand before any stop text.

        ``tentative``: what follows ``text`` if nothing else comes. A stop text that needs it counts; without one, it
        is forgotten, and comes again as ``text`` once it is certain.
        """
        assert self.found is None, f"text was pushed after the stop text {self.found!r}"
        text = self._held + text
        start = self._find(text + tentative)
        if start is not None:
            self._held = ""
            return (text + tentative)[:start]
        cut = len(text) - self._num_to_hold(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """The end of the text: what is held back turned out to be no stop text."""
        rest, self._held = self._held, ""
        return rest

    def _find(self, text: str) -> int | None:
        matches = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not matches:
            return None
        _, start, self.found = min(matches)
        return start

    def _num_to_hold(self, text: str) -> int:
        for length in range(min(self._max_held, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
