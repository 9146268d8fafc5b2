"""What happened in each frame, in words: templates and the numbers and names that fill them.

A template is English with marks in it: ``{r}`` a request, ``{n}`` a number, ``{b}`` some blocks, ``{t}`` a text of the
trace. Marks keep words and data apart: the page turns requests and blocks into links, and no text of a trace can
pass for markup. Each sentence has a kind, by which a reader jumps from one to the next.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import chain
from typing import Any

from viz import palette

SHOWN_RUNS = 6
"""So many runs of neighbouring blocks are named in a sentence; of more, these and the number of the other blocks."""


@dataclass(frozen=True)
class Kind:
    """A kind of sentence: ``label`` names one of them, ``look`` is its place in the palette."""

    name: str
    label: str
    look: palette.Look
    is_jump: bool = True
    """Whether readers may jump to the next of this kind."""


ARRIVAL = Kind("arrival", "arrival", palette.WAITING)
REJECTED = Kind("rejected", "refusal", palette.PREEMPTED)
HIT = Kind("hit", "prefix hit", palette.HIT)
EVICTED = Kind("evicted", "eviction", palette.EVICTED)
ALLOCATED = Kind("allocated", "allocation", palette.ALLOCATED, is_jump=False)
PREFILL = Kind("prefill", "prefill", palette.PREFILL)
CHUNK = Kind("chunk", "chunk", palette.PREFILL)
DECODE = Kind("decode", "decode", palette.DECODE, is_jump=False)
HELD = Kind("held", "held", palette.HELD)
STILL_HELD = Kind("still_held", "still held", palette.HELD, is_jump=False)
PREEMPTED = Kind("preempted", "preemption", palette.PREEMPTED)
PUBLISHED = Kind("published", "publication", palette.CACHED, is_jump=False)
FINISHED = Kind("finished", "finish", palette.FINISHED)
EMPTY = Kind("empty", "empty step", palette.IDLE)

KINDS = (
    PREEMPTED,
    HELD,
    STILL_HELD,
    HIT,
    CHUNK,
    PREFILL,
    DECODE,
    EVICTED,
    ALLOCATED,
    PUBLISHED,
    ARRIVAL,
    REJECTED,
    FINISHED,
    EMPTY,
)
_KIND_CODES = {kind.name: code for code, kind in enumerate(KINDS)}


def count(number: int, thing: str) -> str:
    """``{n} things`` with the right ending; the number itself is an argument of the sentence."""
    return f"{{n}} {thing}" if number == 1 else f"{{n}} {thing}s"


def ordinal(number: int) -> str:
    """``first``, ``second``, ``third``, ``4th``, ``21st`` ..."""
    words = {1: "first", 2: "second", 3: "third"}
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return words.get(number, f"{number}{ending}")


def some_blocks(blocks: list[int]) -> tuple[int, ...]:
    """Blocks as the argument of a ``{b}``: how many are not named, how many runs are, and first and last of each.

    A run goes up or down: 4, 5, 6, 2, 1 are the runs 4 to 6 and 2 to 1.
    """
    runs: list[tuple[int, int]] = []
    num_named = 0
    while num_named < len(blocks) and len(runs) < SHOWN_RUNS:
        first = last = blocks[num_named]
        num_named += 1
        while num_named < len(blocks) and _goes_on(first, last, blocks[num_named]):
            last = blocks[num_named]
            num_named += 1
        runs.append((first, last))
    return len(blocks) - num_named, len(runs), *chain.from_iterable(runs)


def _goes_on(first: int, last: int, block: int) -> bool:
    step = block - last
    return step in (1, -1) and (first == last or (last > first) == (step > 0))


class Sentences:
    """All sentences of a run, frame by frame."""

    def __init__(self) -> None:
        self._templates: dict[tuple[str, int], int] = {}
        self._texts: dict[str, int] = {}
        self._frames = array("q")
        self._template_codes = array("q")
        self._first_arguments = array("q", [0])
        self._arguments = array("q")

    def add(self, frame: int, kind: Kind, template: str, *arguments: int) -> None:
        """One more sentence, with a row for ``{r}``, ``text()`` for ``{t}``, ``*some_blocks()`` for ``{b}``."""
        key = template, _KIND_CODES[kind.name]
        self._template_codes.append(self._templates.setdefault(key, len(self._templates)))
        self._frames.append(frame)
        self._arguments.extend(arguments)
        self._first_arguments.append(len(self._arguments))

    def text(self, text: str) -> int:
        """The argument that stands for a text of the trace."""
        return self._texts.setdefault(text, len(self._texts))

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
