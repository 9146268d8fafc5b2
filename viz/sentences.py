"""What happened, in words: templates and what fills them, for every view that tells it.

A template is English with marks in it: ``{r}`` a request, ``{n}`` a number, ``{b}`` some blocks, ``{t}`` a text of the
trace. Marks keep words and data apart: a page turns requests and blocks into links, and no text of a trace can pass
for markup. Each sentence has a kind, by which a reader jumps from one to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from nanovllm.trace.events import RequestId
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

Argument = RequestId | Sequence[int]
"""A request, a number, a text, or blocks: which of them, the template's mark says."""


class Sentence(NamedTuple):
    """One thing that happened."""

    kind: Kind
    template: str
    arguments: tuple[Argument, ...]

    @property
    def text(self) -> str:
        """The sentence as one string."""
        return fill(self, _WRITERS)


Say = Callable[[Sentence], object]
"""Whoever listens to sentences."""


@lru_cache(maxsize=1024)
def parse(template: str) -> tuple[str, ...]:
    """Words and marks of a template by turns: ``"{r} decodes"`` is ``("", "r", " decodes")``."""
    return tuple(re.split(r"\{([rnbt])\}", template))


def fill(sentence: Sentence, writers: dict[str, Callable[[Any], str]]) -> str:
    """Template and arguments as one string; ``writers`` says how an argument is written, mark by mark."""
    parts = list(parse(sentence.template))
    for index, argument in enumerate(sentence.arguments):
        parts[2 * index + 1] = writers[parts[2 * index + 1]](argument)
    return "".join(parts)


# ---- parts of sentences ----------------------------------------------------------------------------------------------


def count(number: int, thing: str) -> str:
    """``{n} things`` with the right ending; the number itself is an argument of the sentence."""
    return f"{{n}} {thing}" if number == 1 else f"{{n}} {thing}s"


def ordinal(number: int) -> str:
    """``first``, ``second``, ``third``, ``4th``, ``21st`` ..."""
    words = {1: "first", 2: "second", 3: "third"}
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return words.get(number, f"{number}{ending}")


def block_runs(blocks: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """The first runs of neighbouring blocks, each as its first and last one, and how many blocks are in none of them.

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
    return runs, len(blocks) - num_named


def _goes_on(first: int, last: int, block: int) -> bool:
    step = block - last
    return step in (1, -1) and (first == last or (last > first) == (step > 0))


def name_blocks(blocks: Sequence[int]) -> str:
    """``3, 4–9 and 12 more``."""
    runs, num_others = block_runs(blocks)
    named = ", ".join(_name_run(first, last) for first, last in runs)
    return f"{named} and {num_others:,} more" if num_others else named


def _name_run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}{'–' if abs(last - first) > 1 else ', '}{last}"


_WRITERS: dict[str, Callable[[Any], str]] = {"r": str, "n": "{:,}".format, "b": name_blocks, "t": str}
