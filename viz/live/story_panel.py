"""What happened last, in words; what was said again and again, once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from viz import palette
from viz.live.follower import Told
from viz.live.row import Cells, Row, clip, fill, rule, wrap
from viz.live.theme import Theme
from viz.sentences import Kind

_LOUD = (palette.PREEMPTED, palette.HIT, palette.EVICTED)


@dataclass
class Entry:
    """A sentence, and the steps that it was said of."""

    first_step: int
    last_step: int
    kind: Kind
    text: str

    @property
    def steps(self) -> str:
        """``7`` or ``7–29``."""
        return str(self.first_step) if self.first_step == self.last_step else f"{self.first_step}–{self.last_step}"


def entries_of(told: Iterable[Told]) -> list[Entry]:
    """One entry for a sentence that is repeated from step to step; in the order in which they were last said."""
    entries: dict[tuple[str, int], Entry] = {}
    newest: dict[str, Entry] = {}
    for _, step, sentence in told:
        text = sentence.text
        entry = newest.get(text)
        if entry is None or entry.last_step < step - 1:
            entry = newest[text] = Entry(step, step, sentence.kind, text)
        entry.last_step = step
        entries.pop((text, entry.first_step), None)
        entries[text, entry.first_step] = entry
    return list(entries.values())


def story_panel(told: Iterable[Told], problem: str | None, width: int, height: int, theme: Theme) -> list[Cells]:
    """The last entries, the newest at the bottom, in rows that fit exactly. ``problem``: why nothing follows."""
    room = height - 1
    rows: list[Cells] = []
    entries = entries_of(told)
    if problem is not None:
        rows = _problem(problem, width, theme)
    label = 2 * len(str(max((entry.last_step for entry in entries), default=0))) + 1  # 98–99: nothing shall jump
    for entry in reversed(entries):
        rows = _entry(entry, label, width, room - len(rows), theme) + rows
    return [rule("what happened", width, theme), *fill(rows, room, width, theme)]


def _entry(entry: Entry, label: int, width: int, room: int, theme: Theme) -> list[Cells]:
    look = entry.kind.look
    rows = []
    for index, line in enumerate(clip(wrap(entry.text, width - label - 5), room)):
        row = Row(theme).add(f" {'' if index else entry.steps:>{label}} ", palette.MUTED)
        if index:
            row.add("   ")
        else:
            row.mark(look, bold=True).add(" ")
        loud = look in _LOUD
        rows.append(row.add(line, look if loud else palette.INK, bold=look is palette.PREEMPTED).cells(width))
    return rows


def _problem(problem: str, width: int, theme: Theme) -> list[Cells]:
    lines = wrap(problem, width - 3)
    rows = []
    for index, line in enumerate(lines):
        row = Row(theme).add(" ").add("  " if index else "! ", palette.PREEMPTED, bold=True)
        rows.append(row.add(line, palette.PREEMPTED, bold=True).cells(width))
    return rows
