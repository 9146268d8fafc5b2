"""The fluidity index: runs of a few tokens by hand, and random ones against Etalon's way to count, gap by gap."""

from __future__ import annotations

import math
import sys
from itertools import accumulate

import pytest
from hypothesis import example, given, strategies as st

from nanovllm.trace.metrics.fluidity import Deadlines, count_deadlines
from nanovllm.trace.metrics.slo import SHORTEST_LIMIT_S

# Multiples of 1/64: sums and differences are exact, so that two ways to count agree at the deadline itself.
durations = st.integers(1, 400).map(lambda number: number / 64)
gap_lists = st.lists(durations, min_size=1, max_size=20)


def deadlines(*times_s: float, arrival_s: float = 0.0) -> Deadlines | None:
    """With 4 seconds for the first token and 1 for each further one."""
    return count_deadlines([arrival_s + time_s for time_s in times_s], arrival_s, 4.0, 1.0)


@pytest.mark.parametrize(
    ("times_s", "kept", "missed"),
    [
        ((4, 5, 6), 3, 0),  # each just in time
        ((1, 4, 6), 3, 0),  # the first leaves 3 s of slack, the second 1 s of it: due at 4, 5, 6
        ((1, 4, 6.5), 2, 1),  # half a second late
        ((4, 7.5, 8.5), 2, 3),  # due at 5: late for 5, 6 and 7; then due at 8.5
        ((6,), 0, 3),  # due at 4: late for 4, 5 and, as it comes, 6
        ((4.5, 5.5, 5.5, 5.5), 3, 1),
        ((0.0, 7.0), 1, 3),  # due at 5
    ],
)
def test_by_hand(times_s: tuple[float, ...], kept: int, missed: int) -> None:
    assert deadlines(*times_s) == deadlines(*times_s, arrival_s=100.0) == Deadlines(kept, missed)


def test_an_early_pause_is_met_and_a_late_one_is_made_up_for() -> None:
    gaps_s = [0.5] * 20
    early, late = [3.0, *gaps_s], [*gaps_s, 3.0]
    counted = [count_deadlines(list(accumulate([4.0, *gaps])), 0.0, 4.0, 1.0) for gaps in (early, late)]
    assert counted == [Deadlines(kept=21, missed=3), Deadlines(kept=22, missed=0)]
    assert counted[0] is not None
    assert counted[0].fluidity_index == 21 / 24


def test_no_token_no_deadline() -> None:
    assert deadlines() is None


@given(gap_lists, durations, durations)
def test_as_etalon_counts(gaps_s: list[float], prefill_s: float, decode_s: float) -> None:
    kept = missed = 0
    slack_s = 0.0
    for number, gap_s in enumerate(gaps_s):
        allowed_s = prefill_s if number == 0 else decode_s
        if gap_s <= allowed_s + slack_s:
            slack_s += allowed_s - gap_s
            kept += 1
        else:
            missed += int((gap_s - slack_s - allowed_s) // decode_s) + 1
            slack_s = 0.0
    assert count_deadlines(list(accumulate(gaps_s)), 0.0, prefill_s, decode_s) == (kept, missed)


@given(gap_lists, durations, durations, durations, durations)
def test_more_time_is_never_worse(
    gaps_s: list[float], prefill_s: float, decode_s: float, more_prefill_s: float, more_decode_s: float
) -> None:
    times_s = list(accumulate(gaps_s))
    strict = count_deadlines(times_s, 0.0, prefill_s, decode_s)
    loose = count_deadlines(times_s, 0.0, prefill_s + more_prefill_s, decode_s + more_decode_s)
    assert strict is not None
    assert loose is not None
    assert 0 <= strict.fluidity_index <= loose.fluidity_index <= 1
    assert loose.missed <= strict.missed


ever = st.floats(-sys.float_info.max, sys.float_info.max)
limits = st.floats(SHORTEST_LIMIT_S, sys.float_info.max)


@given(st.lists(ever | st.just(math.inf), min_size=1, max_size=5).map(sorted), ever, limits, limits)
@example([math.inf], 0.0, 1.0, 1.0)
@example([1e308], -1e308, 1.0, 1.0)
@example([1.0, 1e308], 0.0, 1e-9, 1e-9)
def test_there_is_an_index_for_all_times_that_a_float_holds(
    times_s: list[float], arrival_s: float, prefill_s: float, decode_s: float
) -> None:
    counted = count_deadlines(times_s, arrival_s, prefill_s, decode_s)
    assert counted is not None
    assert counted.kept + counted.missed >= len(times_s)
    assert 0 <= counted.fluidity_index <= 1


@given(gap_lists, durations, durations)
def test_all_deadlines_are_kept_if_every_gap_is_short(gaps_s: list[float], prefill_s: float, decode_s: float) -> None:
    if gaps_s[0] <= prefill_s and all(gap_s <= decode_s for gap_s in gaps_s[1:]):
        assert count_deadlines(list(accumulate(gaps_s)), 0.0, prefill_s, decode_s) == (len(gaps_s), 0)
