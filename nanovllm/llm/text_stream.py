"""The text of one request while it is generated: tokens in, text out, up to the first stop text."""

from __future__ import annotations

from nanovllm.llm.detokenizer import REPLACEMENT_CHARACTER, Detokenizer, TextDecoder
from nanovllm.llm.stop import StopFinder


class TextStream:
    """Grows with each token. What ``text`` holds never changes any more."""

    def __init__(self, decoder: TextDecoder, stops: tuple[str, ...] = ()) -> None:
        self.text = ""
        self._detokenizer = Detokenizer(decoder)
        self._finder = StopFinder(stops)

    @property
    def stop(self) -> str | None:
        """The stop text that ended the text, if one did."""
        return self._finder.found

    def push(self, token_id: int) -> bool:
        """Take in the next token. Returns whether the text ends here, before a stop text."""
        certain = self._detokenizer.push(token_id)
        tentative = self._detokenizer.pending.rstrip(REPLACEMENT_CHARACTER)
        self.text += self._finder.push(certain, tentative)
        return self.stop is not None

    def finish(self) -> str:
        """No token follows: complete ``text`` with what was held back, and return it."""
        if self.stop is None:
            self.text += self._finder.push(self._detokenizer.flush())
        if self.stop is None:
            self.text += self._finder.flush()
        return self.text
