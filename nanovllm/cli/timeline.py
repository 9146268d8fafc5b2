"""A run in few lines: a row a step, or a row for all the steps in which nothing new happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nanovllm.cli.console import print_table
from nanovllm.cli.metrics_table import duration
from nanovllm.errors import printable
from nanovllm.trace.by_step import by_step
from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    DecodeScheduled,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
)
from viz.palette import DECODE, FINISHED, HIT, PREEMPTED, PREFILL, WAITING, Look

MARKED = {HIT: "green", PREFILL: "blue", PREEMPTED: "bold red"}
"""What stands out, and its style."""


class Note(NamedTuple):
    """Something that happened, and how it is marked."""

    look: Look
    text: str


@dataclass(kw_only=True)
class Row:
    """One step, or several alike."""

    first_step: int
    last_step: int
    start_s: float = 0.0
    end_s: float = 0.0
    before: list[Note] = field(default_factory=list)
    """What happened in the first step until its tokens were computed, but for decoding."""
    decoding: list[RequestId] = field(default_factory=list)
    after: list[Note] = field(default_factory=list)
    """What happened at the end of the last one."""

    @property
    def steps(self) -> str:
        """``7`` or ``7–29``."""
        return str(self.first_step) if self.first_step == self.last_step else f"{self.first_step}–{self.last_step}"

    @property
    def notes(self) -> list[Note]:
        """Everything that happened, in order."""
        if not self.decoding:
            return [*self.before, *self.after]
        num_steps = self.last_step - self.first_step + 1
        each = "a token each" if num_steps == 1 else f"{num_steps} tokens each"
        return [*self.before, Note(DECODE, f"{_list(self.decoding)}: {each}"), *self.after]

    def continues_as(self, following: Row) -> bool:
        """Whether the next step does only more of the same."""
        return not (self.after or following.before or following.after) and following.decoding == self.decoding


def print_timeline(events: Iterable[AnyEvent]) -> None:
    """The rows of a trace as a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table("step", "time", "what happened", box=None, padding=(0, 1))
    table.columns[1].justify = "right"
    for row in summarize_steps(events):
        lines = [Text(f"{note.look.glyph} {printable(note.text)}", MARKED.get(note.look, "")) for note in row.notes]
        table.add_row(row.steps, duration(row.end_s - row.start_s), Text("\n").join(lines))
    print_table(table)


def summarize_steps(events: Iterable[AnyEvent]) -> Iterator[Row]:
    """The rows of a trace, in order."""
    row: Row | None = None
    for following in _each_step(events):
        if row is not None and row.continues_as(following):
            row.last_step, row.end_s = following.last_step, following.end_s
            continue
        if row is not None:
            yield row
        row = following
    if row is not None:
        yield row


def _each_step(events: Iterable[AnyEvent]) -> Iterator[Row]:
    narrator = _Narrator()
    for step, group in by_step(events):
        row = Row(first_step=step, last_step=step)
        ends = row.before
        for event in group:
            if isinstance(event, StepStarted):
                row.start_s = row.end_s = event.time
                ends = row.after
            elif isinstance(event, StepFinished):
                row.end_s = event.time
            elif isinstance(event, DecodeScheduled):
                row.decoding = event.requests
            elif isinstance(event, RequestFinished):
                ends.append(Note(FINISHED, f"{event.request} is finished ({event.reason})"))
            elif (note := narrator.tell(event)) is not None:
                row.before.append(note)
        yield row


class _Narrator:
    """Tells of arrivals, prompts and preemptions; remembers what a sentence needs from the events before."""

    def __init__(self) -> None:
        self._hit_tokens: dict[RequestId, int] = {}
        self._preempted: set[RequestId] = set()

    def tell(self, event: AnyEvent) -> Note | None:
        if isinstance(event, RequestAdded):
            return Note(WAITING, f"{event.request} arrives: {event.prompt_tokens} tokens")
        if isinstance(event, PrefixHit):
            self._hit_tokens[event.request] = event.tokens
        elif isinstance(event, ChunkScheduled):
            return self._tell_chunk(event, self._hit_tokens.pop(event.request, 0))
        elif isinstance(event, Preempted):
            self._preempted.add(event.request)
            again = " again" if event.count > 1 else ""
            who = "it" if event.for_request == event.request else event.for_request
            lost = f"{event.tokens_lost} computed tokens are lost"
            return Note(PREEMPTED, f"{event.request} is preempted{again}: {who} needs a block, {lost}")
        return None

    def _tell_chunk(self, event: ChunkScheduled, hit_tokens: int) -> Note:
        request, end = event.request, event.start + event.tokens
        total = end + event.remaining
        if request in self._preempted:
            return Note(
                PREFILL,
                f"{request} is back: {hit_tokens} of its {total} tokens are still cached, "
                f"{event.tokens} are recomputed",
            )
        if hit_tokens:
            return Note(
                HIT, f"{request}: prefix hit, {hit_tokens} of {total} tokens are cached, {event.tokens} computed"
            )
        if event.start or event.remaining:
            return Note(PREFILL, f"{request}: a chunk of its prompt, tokens {event.start + 1}–{end} of {total}")
        return Note(PREFILL, f"{request}: its prompt, all {total} tokens")


def _list(requests: list[RequestId]) -> str:
    *others, last = map(str, requests)
    return f"{', '.join(others)} and {last}" if others else last
