"""The sentences of a run as columns: the page fills the templates itself, see ``sentences.js``."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import chain
from typing import Any

from nanovllm.trace.events import RequestId
from viz.sentences import KINDS, Sentence, block_runs, parse

_KIND_CODES = {kind.name: code for code, kind in enumerate(KINDS)}


def some_blocks(blocks: list[int]) -> tuple[int, ...]:
    """Blocks as the argument of a ``{b}``: how many are not named, how many runs are, and first and last of each."""
    runs, num_others = block_runs(blocks)
    return num_others, len(runs), *chain.from_iterable(runs)


class Sentences:
    """All sentences of a run, frame by frame. ``row_of``: the row that stands for a request."""

    def __init__(self, row_of: Callable[[RequestId], int]) -> None:
        self._templates: dict[tuple[str, int], int] = {}
        self._texts: dict[str, int] = {}
        self._frames = array("q")
        self._template_codes = array("q")
        self._first_arguments = array("q", [0])
        self._arguments = array("q")
        self._encoders: dict[str, Callable[[Any], tuple[int, ...]]] = {
            "r": lambda request: (row_of(request),),
            "n": lambda number: (number,),
            "b": some_blocks,
            "t": lambda text: (self._texts.setdefault(text, len(self._texts)),),
        }

    def add(self, frame: int, sentence: Sentence) -> None:
        """One more sentence."""
        key = sentence.template, _KIND_CODES[sentence.kind.name]
        self._template_codes.append(self._templates.setdefault(key, len(self._templates)))
        self._frames.append(frame)
        for mark, argument in zip(parse(sentence.template)[1::2], sentence.arguments, strict=True):
            self._arguments.extend(self._encoders[mark](argument))
        self._first_arguments.append(len(self._arguments))

    def columns(self) -> dict[str, array[int]]:
        """Of each sentence: frame, template and where its arguments begin; and all arguments in one column."""
        return {
            "frame": self._frames,
            "template": self._template_codes,
            "first_argument": self._first_arguments,
            "argument": self._arguments,
        }

    def words(self) -> dict[str, Any]:
        """What the columns refer to."""
        kinds = [
            {"name": kind.name, "label": kind.label, "look": kind.look.name, "jump": kind.is_jump} for kind in KINDS
        ]
        return {"templates": [list(key) for key in self._templates], "texts": list(self._texts), "kinds": kinds}
