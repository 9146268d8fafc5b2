"""The two queues: each request with what it does, its bar and its numbers; of many, as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from rich.cells import cell_len

from nanovllm.trace.events import RequestId
from nanovllm.trace.state.request_state import RequestState
from viz import palette
from viz.live.bars import cells_of, request_parts
from viz.live.follower import Follower
from viz.live.row import Cells, Row, fill, rule, shorten
from viz.live.theme import Theme

_LEAST_BAR, _MOST_BAR = 10, 72
_MOST_NAME_SHARE = 4
"""A name takes at most this part of the width, one quarter."""


@dataclass(frozen=True)
class _Line:
    """What is said of one request."""

    state: RequestState
    look: palette.Look
    hit_tokens: int
    chunk_tokens: int

    @property
    def cached(self) -> str:
        """Of the tokens it has, how many are in the cache."""
        return f"{self.state.num_cached_tokens}/{self.state.num_tokens}"

    @property
    def generated(self) -> str:
        """Of the tokens it may generate, how many are there."""
        return f"{self.state.num_completion_tokens}/{self.state.max_tokens}"

    @property
    def preempted(self) -> str:
        """How often it was preempted, unless never."""
        return f"{self.state.num_preemptions}" if self.state.num_preemptions else ""


_LEGEND = (
    (palette.HIT, "hit"),
    (palette.COMPUTED, "computed"),
    (palette.SCHEDULED, "now"),
    (palette.REMAINING, "to do"),
    (palette.GENERATED, "generated"),
)


def rows_wanted(follower: Follower) -> int:
    """So high the panel would be if it showed all; it does not shrink when a queue does."""
    tally = follower.tally
    return 3 + max(1, tally.most_running) + max(1, tally.most_waiting)


def request_panel(follower: Follower, width: int, height: int, theme: Theme) -> list[Cells]:
    """Both queues, one above the other, in rows that fit exactly."""
    replay = follower.replay
    running, waiting = replay.running, replay.waiting
    slots = None if replay.header is None else replay.header.config.get("max_num_seqs")
    room = height - 3
    room_waiting = min(max(1, len(waiting)), max(room - max(1, len(running)), room // 3))
    room_running = room - room_waiting
    lines_running = _shown(follower, running, room_running, palette.IDLE)
    lines_waiting = _shown(follower, waiting, room_waiting, palette.WAITING)
    columns = _Columns([*lines_running, *lines_waiting], width, theme)
    title = f"running {len(running):,}" + (f" of {slots:,}" if isinstance(slots, int) else "")
    rows = [rule(title, width, theme, columns.heading)]
    rows += fill(columns.rows(lines_running, len(running), room_running), room_running, width, theme)
    rows.append(rule(f"waiting {len(waiting):,}", width, theme))
    rows += fill(columns.rows(lines_waiting, len(waiting), room_waiting), room_waiting, width, theme)
    return [*rows, _legend(width, theme)]


def _legend(width: int, theme: Theme) -> Cells:
    row = Row(theme)
    for look, word in _LEGEND:
        row.add(" ").mark(look).add(f" {word}", palette.MUTED)
    return row.cells(width)


def _shown(follower: Follower, queue: Iterable[RequestId], room: int, at_rest: palette.Look) -> list[_Line]:
    """The head of a queue, as far as there may be room."""
    replay, hits = follower.replay, follower.narrator.hits
    lines = []
    for request in islice(queue, max(0, room)):
        look = follower.activities.get(request, at_rest)
        chunk_tokens = replay.scheduled[request] if look is palette.PREFILL else 0
        lines.append(_Line(replay.requests[request], look, hits.get(request, 0), chunk_tokens))
    return lines


class _Columns:
    """How wide each column is, so that the bars stand below each other."""

    def __init__(self, lines: list[_Line], width: int, theme: Theme) -> None:
        self._theme, self._width = theme, width
        names = [cell_len(theme.text(str(line.state.request))) for line in lines]
        self._name = min(max(names, default=0), width // _MOST_NAME_SHARE)
        self._cached = max([len(line.cached) for line in lines] + [len("cached")])
        self._generated = max([len(line.generated) for line in lines] + [len("generated")])
        self._preempted = max([1 + len(line.preempted) for line in lines if line.preempted], default=0)
        used = 4 + self._name + 1 + self._cached + (1 + self._preempted if self._preempted else 0)
        bar = width - used - 1 - self._generated
        self._has_generated = bar >= _LEAST_BAR
        self._bar = min(_MOST_BAR, bar if self._has_generated else width - used)

    @property
    def heading(self) -> str:
        """What the numbers at the right are."""
        names = f"{'cached':>{self._cached}}"
        return f"{names} {'generated':>{self._generated}}".strip() if self._has_generated else names.strip()

    def rows(self, lines: list[_Line], num_requests: int, room: int) -> list[Cells]:
        """A queue in at most so many rows."""
        theme, width = self._theme, self._width
        if not lines:
            return [Row(theme).add(" nobody", palette.MUTED).cells(width)] if room > 0 else []
        if num_requests <= room:
            return [self._row(line) for line in lines]
        rest = num_requests - (room - 1)
        more = f" … and {rest:,} more"
        return [*map(self._row, lines[: room - 1]), Row(theme).add(more, palette.MUTED).cells(width)]

    def _row(self, line: _Line) -> Cells:
        theme, state = self._theme, line.state
        row = Row(theme).add(" ").mark(line.look, bold=True).add(" ")
        row.add(shorten(str(state.request), self._name, theme)).add(" ")
        for look, cells in cells_of(request_parts(state, line.hit_tokens, line.chunk_tokens), self._bar):
            row.mark(look, cells) if look is not None else row.add(" " * cells)
        if self._preempted:
            row.add(" ")
            row.mark(palette.PREEMPTED) if line.preempted else row.add(" ")
            row.add(f"{line.preempted:<{self._preempted - 1}}", palette.PREEMPTED)
        row.add(f" {line.cached:>{self._cached}}")
        if self._has_generated:
            row.add(f" {line.generated:>{self._generated}}", palette.MUTED)
        return row.cells(self._width)
