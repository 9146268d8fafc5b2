"""When tokens came, how long the gaps between them are, and how a burst looks; a scheduled token takes a second."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import TraceError, UserError
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.metrics.collector import MetricsCollector
from sim.generators import independent_requests, poisson, uniform
from tests.sim.runs import SMALL, requests, run
from tests.viz.figures.drawn import flaws, texts_of
from viz import palette
from viz.figures import decode_gaps
from viz.figures.decode_gaps import Span, burst_data, gap_tail
from viz.figures.token_times import TokenTimes, token_times_of


def trace(policy: str = "prefill_first", *shapes: tuple[int, int, float]) -> list[AnyEvent]:
    """By default: while request 0 is between its first and its second token, the prompt of request 1 is computed."""
    load = requests(*(shapes or ((8, 3, 0), (8, 1, 1))))
    return run(load, replace(SMALL, policy=policy)).events


def busy(policy: str, lookahead: bool = False) -> list[AnyEvent]:
    load = independent_requests(
        60, prompt_len=uniform(1, 60), output_len=uniform(1, 20), arrivals=poisson(0.05), seed=1
    )
    return run(load, replace(SMALL, policy=policy, lookahead=lookahead)).events


def test_a_token_comes_when_its_step_ends() -> None:
    times = token_times_of(trace())
    assert [(tokens.request, tokens.arrival_s) for tokens in times.requests] == [(0, 0), (1, 1)]
    assert [list(tokens.times_s) for tokens in times.requests] == [[8, 17, 18], [16]]
    assert times.gaps_s().tolist() == [1, 9]
    assert times.longest_gap() == (8, 17)


def test_gaps_are_those_of_the_metrics() -> None:
    for policy, lookahead in (("prefill_first", False), ("mixed", False), ("mixed", True)):
        events = busy(policy, lookahead)
        collector = MetricsCollector()
        for event in events:
            collector.apply(event)
        assert Counter(token_times_of(events).gaps_s().tolist()) == collector.gaps


def test_a_run_is_called_by_its_policy_or_as_told() -> None:
    assert token_times_of(trace("mixed")).label == "mixed"
    assert token_times_of(trace("mixed"), "cautious").label == "cautious"
    listening = TokenTimes("live")
    assert token_times_of(listening) is listening


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4000))
@settings(max_examples=40)
def test_the_tail_tells_which_share_of_the_gaps_is_as_long(gaps: list[int]) -> None:
    ordered = np.sort(np.array(gaps, np.float64))
    lengths, shares = gap_tail(ordered)
    assert (lengths[0], shares[0]) == (min(gaps), 1)
    assert (lengths[-1], shares[-1]) == (max(gaps), pytest.approx(1 / len(gaps)))
    assert all(np.diff(lengths) >= 0)
    assert all(np.diff(shares) < 0)
    for length, share in zip(lengths.tolist(), shares.tolist(), strict=True):
        longer, as_long = np.mean(ordered > length), np.mean(ordered >= length)
        assert longer < share <= as_long + 1e-12


def test_a_burst_is_shown_around_the_longest_gap() -> None:
    (burst,) = burst_data([token_times_of(trace())], stall_s=5)
    assert burst.window_s == (8 - 0.25 * 9, 17 + 0.75 * 9)
    assert burst.spans == [
        Span(0, 5.75, 8, palette.WAITING),
        Span(0, 8, 17, palette.STALLED),
        Span(0, 17, 18, palette.DECODE),
        Span(1, 5.75, 16, palette.WAITING),
    ]
    assert burst.seconds(palette.STALLED) == 9


def test_a_request_has_the_same_row_in_each_run() -> None:
    runs = [token_times_of(trace(policy, (8, 3, 0), (8, 2, 1), (4, 2, 20))) for policy in ("prefill_first", "mixed")]
    bursts = burst_data(runs, (18.5, 24), stall_s=100)
    # Request 1 has ended in the first of them; its row stays empty there.
    assert [burst.num_rows for burst in bursts] == [3, 3]
    assert [sorted({span.row for span in burst.spans}) for burst in bursts] == [[0, 2], [0, 1, 2]]
    assert all(18.5 <= span.start_s < span.end_s <= 24 for burst in bursts for span in burst.spans)


def test_steps_without_a_stall_are_one_span() -> None:
    (burst,) = burst_data([token_times_of(trace("prefill_first", (4, 5, 0)))], (0, 10), stall_s=2)
    assert burst.spans == [Span(0, 0, 4, palette.WAITING), Span(0, 4, 8, palette.DECODE)]


def test_words_of_the_figure_do_not_cover_each_other() -> None:
    figure = decode_gaps([busy("prefill_first"), busy("mixed")], stall_s=30)
    assert flaws(figure) == []
    longest = compute_metrics(busy("mixed")).inter_token_latency_s
    assert longest is not None
    texts = texts_of(figure)
    assert {"Gaps between tokens", "prefill_first", "mixed", "waits for its first token", " 30 s"} <= texts
    assert any(f"longest {longest.max:.3g} s" in text for text in texts)
    assert len(figure.axes) == 3


def test_runs_with_the_same_gaps_are_one_curve() -> None:
    figure = decode_gaps([busy("prefill_first"), busy("mixed"), busy("mixed")], labels=["a", "b", "c"], stall_s=30)
    assert flaws(figure) == []
    texts = texts_of(figure)
    assert {text.partition(":")[0] for text in texts if "longest" in text} == {"a", "b and c"}
    assert {"a", "b", "c"} <= texts, "each has its own burst below"


def test_what_was_promised_stands_with_each_run() -> None:
    runs = [busy("prefill_first"), busy("mixed"), busy("mixed")]
    figure = decode_gaps(runs, labels=["a", "b", "c"], attainments=[0.125, 1, 0], stall_s=30)
    assert flaws(figure) == []
    texts = texts_of(figure)
    assert {f"{told} of all requests met the SLO" for told in ("a: 12.5%", "b: 100.0%", "c: 0.0%")} <= texts
    assert {text.partition(":")[0] for text in texts if "longest" in text} == {"a", "b and c"}


def test_a_short_burst_has_ticks_that_differ() -> None:
    figure = decode_gaps([trace()], window_s=(9.125, 9.25), stall_s=5)
    figure.draw_without_rendering()
    ticks = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert {"9.16", "9.18", "9.20"} <= set(ticks)
    assert len(set(ticks)) == len(ticks)


def test_one_run_is_enough() -> None:
    assert flaws(decode_gaps([busy("mixed")], labels=["one"])) == []


def test_nothing_to_show_is_an_error() -> None:
    with pytest.raises(UserError, match=r"^prefill_first: there is no gap, as no request got two tokens$"):
        decode_gaps([trace("prefill_first", (4, 1, 0))])
    with pytest.raises(UserError, match=r"^no request is there from 500 to 600 s$"):
        decode_gaps([trace()], window_s=(500, 600))
    with pytest.raises(UserError, match="gaps are drawn of 1 to 3 runs, not 4"):
        decode_gaps([trace()] * 4)
    with pytest.raises(TraceError, match="is empty"):
        decode_gaps([[]])
