"""What the step computes of the most it may compute, and why not more."""

from __future__ import annotations

from viz import palette, sentences
from viz.durations import duration
from viz.live.bars import budget_parts, cells_of
from viz.live.follower import Follower
from viz.live.row import Cells, Row, clip, fill, rule, wrap
from viz.live.theme import Theme

HEIGHT = 4


def step_panel(follower: Follower, width: int, theme: Theme) -> list[Cells]:
    """The step's budget, in ``HEIGHT`` rows."""
    replay = follower.replay
    if follower.step_start_s is None:
        rows = [rule(f"before step {replay.step + 1}", width, theme)]
        return fill(rows, HEIGHT, width, theme)
    used = follower.chunk_tokens + follower.num_decodes
    rows = [rule(f"step {replay.step:,}: {_doing(follower)}", width, theme, _duration(follower))]
    budget = None if replay.header is None else replay.header.config.get("max_num_batched_tokens")
    if isinstance(budget, int):
        rows.append(_bar(follower, used, budget, width, theme))
    for line in clip(wrap(_why(follower, used, budget), width - 2), HEIGHT - len(rows)):
        rows.append(Row(theme).add(f" {line}").cells(width))
    return fill(rows, HEIGHT, width, theme)


def _doing(follower: Follower) -> str:
    if follower.replay.is_in_step:
        return "computing" if follower.chunk_tokens + follower.num_decodes else "deciding"
    is_empty = not follower.chunk_tokens + follower.num_decodes
    return "nothing to compute" if is_empty else follower.phase


def _duration(follower: Follower) -> str:
    start_s, end_s = follower.step_start_s, follower.replay.time
    if start_s is None or follower.replay.is_in_step:
        return ""
    parts = follower.step_parts_s
    told = "" if parts is None else f": host {duration(parts[0])}, device {duration(parts[1])}"
    return f"took {duration(end_s - start_s)}{told}"


def _bar(follower: Follower, used: int, budget: int, width: int, theme: Theme) -> Cells:
    numbers = f" {used:,} of {budget:,} tokens, {max(0, budget - used):,} unused"
    row = Row(theme).add(" ")
    parts = budget_parts(follower.chunk_tokens, follower.num_decodes, budget)
    for look, cells in cells_of(parts, max(10, width - len(numbers) - 2)):
        row.mark(look or palette.REMAINING, cells)
    return row.add(numbers).cells(width)


def _why(follower: Follower, used: int, budget: object) -> str:
    """Why some of the budget is left over."""
    if isinstance(budget, int) and used >= budget:
        return "the budget is used up"
    reasons = []
    if follower.num_decodes:
        reasons.append("a decode computes one token of each running request")
    held = [sentence.text for sentence in follower.said(sentences.HELD, sentences.STILL_HELD)]
    if held:
        reasons.append(held[-1])
    elif not follower.replay.waiting:
        reasons.append("nobody else is waiting")
    return "unused: " + "; ".join(reasons) if reasons else ""
