"""The whole screen: which panel stands where, in rows that fill the terminal exactly."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from viz import palette
from viz.live import figures_panel, pool_panel, request_panel, step_panel
from viz.live.follower import Follower
from viz.live.history import CONTEXT_FRAMES, History
from viz.live.pace import MANY_PENDING_EVENTS
from viz.live.player import Player
from viz.live.row import Cells, Row, shorten
from viz.live.story_panel import story_panel
from viz.live.theme import Theme

LEAST_WIDTH, LEAST_HEIGHT = 80, 24
_LEAST_TOP, _LEAST_STORY = 10, 6
_KEYS = (
    ("space", "pause"),
    ("← →", "step"),
    ("p", "preemption"),
    ("h", "hit"),
    ("c", "chunk"),
    ("+ -", "speed"),
    ("q", "quit"),
    ("< >", "ten steps"),
    ("P H C", "the one before"),
    ("Home End", "first, last step"),
)


@dataclass(frozen=True)
class Scene:
    """What is shown: where the reader stands in a run."""

    history: History
    player: Player
    is_growing: bool
    num_pending: int = 0
    """Events that are there but not shown yet, because the run goes on faster."""
    newest_step: int | None = None
    """How far the run has come, if that is more than the history tells."""
    problem: str | None = None
    """Why the events end before the run did."""


class Screen:
    """A rich renderable of a scene, as large as the terminal is."""

    def __init__(self, scene: Scene, theme: Theme) -> None:
        self._scene = scene
        self._theme = theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for index, row in enumerate(screen_rows(self._scene, options.max_width, options.size.height, self._theme)):
            if index:
                yield Segment.line()
            yield from row


def screen_rows(scene: Scene, width: int, height: int, theme: Theme) -> list[Cells]:
    """The rows of the screen: ``height`` of them, each ``width`` cells wide."""
    if (problem := why_too_small(width, height)) is not None:
        return _message(problem, width, height, theme)
    history = scene.history
    if history.last < 0:
        return _message("waiting for the run to begin", width, height, theme)
    follower = history.at(scene.player.frame)
    is_end = scene.player.frame == history.last and not scene.is_growing
    body = height - 2 - step_panel.HEIGHT - figures_panel.HEIGHT
    left = width * 3 // 5
    right = width - left - 1
    wanted = max(request_panel.rows_wanted(follower), pool_panel.rows_wanted(follower.replay.pool.num_blocks, right))
    top = max(_LEAST_TOP, min(wanted, body - max(_LEAST_STORY, body // 3)))
    requests = request_panel.request_panel(follower, left, top, theme)
    pool = pool_panel.pool_panel(follower, right, top, theme)
    gap = Row(theme).add(" ").cells(1)
    told, problem = follower.told_last(CONTEXT_FRAMES), scene.problem if is_end else None
    return [
        _title(scene, follower, width, theme),
        *([*request_cells, *gap, *pool_cells] for request_cells, pool_cells in zip(requests, pool, strict=True)),
        *step_panel.step_panel(follower, width, theme),
        *story_panel(told, problem, width, body - top, theme),
        *figures_panel.figures_panel(history, follower, width, theme),
        _footer(scene, width, theme),
    ]


def why_too_small(width: int, height: int) -> str | None:
    """What to say of a terminal that has no room for the panels; None if it has."""
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return None
    return f"the view needs {LEAST_WIDTH}×{LEAST_HEIGHT}, the terminal has {width}×{height}"


def _title(scene: Scene, follower: Follower, width: int, theme: Theme) -> Cells:
    header = follower.replay.header
    assert header is not None, "a frame begins after the header"
    replay = follower.replay
    newest_step = max(0, scene.history.newest.replay.step, scene.newest_step or 0)
    where = f"step {max(0, replay.step):,} of {newest_step:,}"
    right = Row(theme).add(f"{where}   {replay.time:,.3f} s   ").add(_pace(scene), bold=True).add(" ")
    model = header.model.rstrip("/").rpartition("/")[2]
    left = Row(theme).add(" ")
    if scene.problem is not None:
        left.add("incomplete  ", palette.PREEMPTED, bold=True)
    names = " · ".join(filter(None, (model, header.backend, header.policy)))
    left.add(shorten(names, max(0, width - left.width - right.width - 2), theme), bold=True)
    return left.add("  ").extend(right.cells(right.width)).cells(width)


def _pace(scene: Scene) -> str:
    player, history = scene.player, scene.history
    behind = history.last - player.frame
    if not scene.is_growing and not behind:
        return "the end"
    if player.is_paused:
        return f"paused, {behind:,} behind" if behind and scene.is_growing else "paused"
    if player.speed is not None:
        return f"{player.speed:,} steps/s"
    if scene.newest_step is not None:
        return "too fast to follow"
    return "live" if scene.num_pending < MANY_PENDING_EVENTS else f"live, {scene.num_pending:,} events behind"


def _footer(scene: Scene, width: int, theme: Theme) -> Cells:
    player = scene.player
    notice = player.notice
    is_over = not scene.is_growing and player.linger_s is not None and player.frame >= scene.history.last
    if is_over and player.linger_s is not None and not notice:
        notice = f"the run is over: a key keeps this screen, else it closes in {max(0, round(player.linger_s))} s"
    row = Row(theme).add(" ")
    if notice:
        row.add(notice, palette.HELD, bold=True).add("   ")
    for key, meaning in _KEYS:
        if row.width + len(key) + 1 + len(meaning) > width - 1:
            break
        row.add(key, bold=True).add(f" {meaning}  ", palette.MUTED)
    return row.cells(width)


def _message(text: str, width: int, height: int, theme: Theme) -> list[Cells]:
    empty = Row(theme).cells(width)
    return [Row(theme).add(text).cells(width), *[empty] * (height - 1)]
