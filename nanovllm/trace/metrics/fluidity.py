"""The fluidity index: how steadily a request's tokens came, seen by somebody who reads along.

From Etalon (first called Metron; Agrawal et al., 2024, https://arxiv.org/abs/2407.07000). Means and percentiles of
latencies don't tell one long pause from many short ones, nor an early one, which a reader meets, from a late one, which
tokens that came ahead of time make up for. The index does: as in watching a film, each token has a deadline.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple


class Deadlines(NamedTuple):
    """How many deadlines a request's tokens kept, and how many they missed."""

    kept: int
    missed: int

    @property
    def fluidity_index(self) -> float:
        """Share of the deadlines that were kept, 0 to 1."""
        return self.kept / (self.kept + self.missed)


def count_deadlines(
    token_times_s: Sequence[float], arrival_s: float, prefill_deadline_s: float, decode_deadline_s: float
) -> Deadlines | None:
    """The deadlines of a request whose tokens came at ``token_times_s``; None if there are no tokens.

    The first token is due ``prefill_deadline_s`` after the arrival, each further one ``decode_deadline_s`` after the
    token before it *was due*: a token that comes early leaves its slack to those after it. One that comes late misses
    its own deadline and one more for each ``decode_deadline_s`` that it is late by; then deadlines are set anew, as
    from when it came, since no later token could be faster than it. So there may be more deadlines than tokens.

    Etalon's algorithm and program count like this. The prefill deadline is one number here; Etalon may let it depend on
    the length of the prompt.
    """
    if not token_times_s:
        return None
    kept = missed = 0
    due_s = arrival_s + prefill_deadline_s
    for time_s in token_times_s:
        if time_s <= due_s:
            kept += 1
            due_s += decode_deadline_s
        else:
            late_by = (time_s - due_s) / decode_deadline_s
            missed += 1 + int(min(late_by, sys.float_info.max))  # infinite is more than a float can count
            due_s = time_s + decode_deadline_s
    return Deadlines(kept, missed)
