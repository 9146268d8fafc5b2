"""What a table of a sweep does not say by itself: requests that were refused, decisions by what no server knows, limits
that are not to be relied on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.cli.cluster import ClusterInput
from nanovllm.cli.console import print_note
from nanovllm.cli.workload_input import WorkloadInput
from nanovllm.errors import WorkloadError
from nanovllm.own_classes import is_class_name

if TYPE_CHECKING:
    from sim.sweeps import Row


def is_search(row: Row) -> bool:
    """Whether a row is of a search for a rate that came to an end."""
    return row["status"] == "completed" and row.get("find_rate") is not None


def print_notes(rows: Sequence[Row]) -> None:
    """A line on standard error for each kind of thing worth knowing of the rows."""
    for note in _notes(rows):
        print_note(note)


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    refusing = [row for row in rows if row["num_rejected"]]
    if refusing:
        num_refused = sum(row["num_rejected"] for row in refusing)
        requests = "1 request was" if num_refused == 1 else f"{num_refused:,} requests were"
        yield f"{requests} refused in {_of(refusing, rows)}, and count as requests that got nothing"
    if told := [row for row in rows if _may_rank_by_answers(row)]:
        yield (
            f"in {_of(told, rows)} max_tokens are the true answer lengths, which no server knows: trace_max_tokens=N "
            "hides them"
        )
    from sim.sweeps.steady_rate import MIN_LIVES

    searches = [row for row in rows if is_search(row)]
    if moving := [row for row in searches if _still_moves(row)]:
        yield (
            f"in {_of(moving, searches)} the limit still moved when requests came for twice as long (rate_drift): one "
            "of still more time may lie further that way; load_duration_s sets the time"
        )
    if short := [row for row in searches if _is_short(row)]:
        yield (
            f"in {_of(short, searches)} requests come for less than {MIN_LIVES} times as long as one lives: a longer "
            "load_duration_s will show a lower limit"
        )
    if few := [row for row in searches if _has_too_few(row)]:
        them = " or ".join(dict.fromkeys(map(_all_of, few)))
        yield f"in {_of(few, searches)} {them} at once still meet the objective: give more to find a limit"


def _may_rank_by_answers(row: Row) -> bool:
    """Whether policy or router may have decided by lengths that the trace tells, as far as its file is still there."""
    cluster = ClusterInput(replicas=row.get("replicas") or 1, router=row.get("router") or ClusterInput.router)
    may_rank = is_class_name(row.get("policy")) or cluster.may_rank_by_max_tokens
    if row["status"] != "completed" or row.get("workload") is None or not may_rank:
        return False
    reading = WorkloadInput(format=row.get("format") or "auto", trace_max_tokens=row.get("trace_max_tokens"))
    try:
        return reading.shows_answers(Path(row["workload"]))
    except WorkloadError:
        return False


def _still_moves(row: Row) -> bool:
    from sim.sweeps.settings import DEFAULT_RATE_TOLERANCE
    from sim.sweeps.steady_rate import is_steady

    return not is_steady(row["rate_drift"] or 0.0, row.get("rate_tolerance", DEFAULT_RATE_TOLERANCE))


def _is_short(row: Row) -> bool:
    """Whether the time for which requests come was chosen, and does not tell much. (Of a limit only: where there is
    none, time makes no difference.)"""
    from sim.sweeps.steady_rate import MIN_LIVES, life_s

    window_s = row["search_window_s"]
    if not row["highest_rate"] or window_s is None or row["rate_drift"] is not None:
        return False
    return bool(window_s < MIN_LIVES * life_s(row))


def _has_too_few(row: Row) -> bool:
    """Whether there is no limit only because no more come than a fixed number."""
    return row["highest_rate"] is None and row["search_window_s"] is None


def _all_of(row: Row) -> str:
    for setting, noun in (("num_sessions", "conversations"), ("num_agents", "agents"), ("num_requests", "requests")):
        if (number := row.get(setting)) is not None:
            return f"all {number:,} {noun}"
    return "all requests"


def _of(some: Sequence[Row], rows: Sequence[Row]) -> str:
    noun = "cell" if len(rows) == 1 else "cells"
    return f"{len(some):,} of {len(rows):,} {noun}"
