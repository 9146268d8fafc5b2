"""How the run goes: speed over the last second, cache hits, preemptions, use of the pool."""

from __future__ import annotations

from viz import palette
from viz.live.follower import Follower
from viz.live.history import History
from viz.live.row import Cells, Row, rule
from viz.live.theme import Theme

HEIGHT = 2
WINDOW_S = 1.0
"""Speeds are means over so much of the run's own time, or over the last step if that took longer."""


def figures_panel(history: History, follower: Follower, width: int, theme: Theme) -> list[Cells]:
    """The figures, in ``HEIGHT`` rows; those that there is no room for are left out."""
    tally, pool = follower.tally, follower.replay.pool
    generated, computed = speeds(history, follower)
    in_use = pool.num_blocks_in_use / pool.num_blocks if pool.num_blocks else 0.0
    hit_rate = tally.hit_tokens / tally.looked_up_tokens if tally.looked_up_tokens else 0.0
    figures = [
        (f"{generated:,.0f}", "tokens/s"),
        (f"{hit_rate:.0%}", "hit rate"),
        (f"{tally.num_preemptions:,}", "preemption" if tally.num_preemptions == 1 else "preemptions"),
        (f"{in_use:.0%}", "of the KV pool in use"),
        (f"{tally.num_finished:,}", "finished"),
        (f"{computed:,.0f}", "computed/s"),
        (f"{tally.generated_tokens:,}", "generated"),
        (f"{tally.hit_tokens:,} of {tally.looked_up_tokens:,}", "prompt tokens found in the cache"),
    ]
    row = Row(theme).add(" ")
    for number, name in figures:
        needed = len(number) + 1 + len(name) + (3 if row.width > 1 else 0)
        if row.width + needed > width - 1:
            break
        if row.width > 1:
            row.add("   ")
        row.add(number, bold=True).add(f" {name}", palette.MUTED)
    return [rule("so far", width, theme), row.cells(width)]


def speeds(history: History, follower: Follower) -> tuple[float, float]:
    """Tokens generated and tokens computed per second, at the end of the frame that the follower shows."""
    before_frame = history.frame_before(follower.frame, WINDOW_S)
    if before_frame is None:
        return 0.0, 0.0
    before, now = history.tally(before_frame), follower.tally
    duration_s = now.time_s - before.time_s
    if duration_s <= 0:
        return 0.0, 0.0
    generated = now.generated_tokens - before.generated_tokens
    return generated / duration_s, (now.computed_tokens - before.computed_tokens) / duration_s
