"""Synthetic load: the distributions are those that were asked for, and everything hangs on the seed."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import islice
from random import Random

import pytest

from nanovllm.errors import ConfigError
from sim.generators import (
    Arrivals,
    Conversation,
    Length,
    SharedPrefixes,
    at_once,
    fixed,
    gamma,
    independent_requests,
    lognormal,
    poisson,
    sessions,
    steps,
    uniform,
)
from sim.token_ids import answer_token_ids
from sim.workload import in_order_of_arrival


def draw_lengths(length: Length, count: int = 4000) -> list[int]:
    rng = Random(1)
    return [length(rng) for _ in range(count)]


def draw_gaps(arrivals: Arrivals, count: int = 8000) -> list[float]:
    times = [arrival.arrival or 0.0 for arrival in islice(arrivals(Random(1)), count)]
    return [b - a for a, b in zip([0.0, *times], times, strict=False)]


def test_fixed_and_uniform_lengths() -> None:
    assert set(draw_lengths(fixed(7))) == {7}
    counts = Counter(draw_lengths(uniform(3, 6)))
    assert sorted(counts) == [3, 4, 5, 6]
    assert all(count == pytest.approx(1000, rel=0.15) for count in counts.values())


def test_lognormal_lengths() -> None:
    lengths = draw_lengths(lognormal(200, 0.8))
    assert statistics.median(lengths) == pytest.approx(200, rel=0.05)
    assert statistics.mean(lengths) == pytest.approx(200 * 2.718281828 ** (0.8**2 / 2), rel=0.1)
    cut = draw_lengths(lognormal(200, 0.8, low=100, high=300))
    assert (min(cut), max(cut)) == (100, 300)


@pytest.mark.parametrize(("median", "sigma"), [(1e308, 1.0), (200, 1000.0), (200, 1e308), (1e-308, 1e308)])
def test_lognormal_lengths_are_cut_however_wide_they_spread(median: float, sigma: float) -> None:
    assert set(draw_lengths(lognormal(median, sigma, high=300), 100)) <= {*range(1, 301)}
    assert max(draw_lengths(lognormal(median, sigma), 100)) <= 2**24


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_gamma_arrivals(cv: float) -> None:
    gaps = draw_gaps(gamma(4.0, cv))
    assert statistics.mean(gaps) == pytest.approx(1 / 4, rel=0.1)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.1)


def test_poisson_arrivals_are_gamma_arrivals() -> None:
    assert draw_gaps(poisson(4.0), 10) == draw_gaps(gamma(4.0, 1.0), 10)


def test_arrivals_by_step_and_at_once() -> None:
    assert [a.arrival_step for a in islice(steps(2, every=3)(Random(0)), 5)] == [0, 0, 3, 3, 6]
    assert [a.arrival for a in islice(at_once()(Random(0)), 3)] == [0, 0, 0]


def test_a_seed_says_it_all_and_lengths_leave_arrivals_alone() -> None:
    def load(seed: int, prompt_len: Length) -> list[tuple[float | None, int | None]]:
        requests = independent_requests(
            20, prompt_len=prompt_len, output_len=uniform(1, 9), arrivals=poisson(2), seed=seed
        )
        return [(request.arrival, request.prompt_len) for request in requests]

    assert load(0, uniform(1, 100)) == load(0, uniform(1, 100))
    assert load(0, uniform(1, 100)) != load(1, uniform(1, 100))
    assert [time for time, _ in load(0, uniform(1, 100))] == [time for time, _ in load(0, fixed(3))]


def test_the_scheduler_may_be_told_more_than_there_will_be() -> None:
    told = list(independent_requests(50, prompt_len=fixed(1), output_len=uniform(1, 20), max_tokens=10))
    assert {request.max_tokens for request in told} == {10}
    lengths = [request.output_len or 0 for request in told]
    assert (min(lengths), max(lengths)) == (1, 10)
    known = list(independent_requests(50, prompt_len=fixed(1), output_len=uniform(1, 20)))
    assert [min(10, request.max_tokens) for request in known] == lengths
    assert {request.output_len for request in known} == {None}


def test_shared_prefixes() -> None:
    prefixes = SharedPrefixes(num_prefixes=3, prefix_len=64, share=0.5)
    requests = list(independent_requests(2000, prompt_len=fixed(8), output_len=fixed(1), prefixes=prefixes))
    counts = Counter(request.prefix for request in requests)
    assert counts[None] == pytest.approx(1000, rel=0.1)
    assert len(counts) == 4
    assert {(request.prefix_len, request.prompt_len) for request in requests} == {(None, 8), (64, 72)}


def test_a_turn_contains_the_answer_to_the_one_before() -> None:
    conversation = Conversation(
        num_turns=uniform(1, 4), message_len=uniform(5, 9), answer_len=uniform(3, 6), mean_think_s=10, system_len=12
    )
    turns = sessions(20, conversation, arrivals=poisson(1), seed=3)
    assert turns == sessions(20, conversation, arrivals=poisson(1), seed=3)
    assert turns == in_order_of_arrival(turns)
    prompts = {str(turn.id): turn.prompt or [] for turn in turns}
    assert len({tuple(prompt[:12]) for prompt in prompts.values()}) == 1
    firsts = [prompts[f"{number}-0"] for number in range(20)]
    assert len({prompt[12] for prompt in firsts}) == 20
    by_id = {str(turn.id): turn for turn in turns}
    later = [turn for turn in turns if not str(turn.id).endswith("-0")]
    assert len(later) > 10
    for turn in later:
        number, index = str(turn.id).split("-")
        before = by_id[f"{number}-{int(index) - 1}"]
        said = prompts[str(before.id)] + answer_token_ids(before.id, before.max_tokens)
        assert prompts[str(turn.id)][: len(said)] == said
        assert len(prompts[str(turn.id)]) in range(len(said) + 5, len(said) + 10)
        assert (turn.arrival, turn.after) == (None, (before.id,))
    assert statistics.mean(turn.delay for turn in later) == pytest.approx(10, rel=0.4)


def test_conversations_end_before_they_are_too_long() -> None:
    conversation = Conversation(
        num_turns=fixed(100), message_len=fixed(10), answer_len=fixed(10), mean_think_s=1, max_prompt_len=95
    )
    turns = sessions(2, conversation)
    assert [len(turn.prompt or []) for turn in turns if str(turn.id).startswith("0-")] == [10, 30, 50, 70, 90]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: fixed(0), "length=0 is not allowed: a whole number from 1 upward"),
        (lambda: uniform(5, 4), "high=4 is not allowed: a whole number from 5 upward"),
        (lambda: lognormal(0, 1), "median=0 is not allowed: a number above 0"),
        (lambda: lognormal(1, float("nan")), "sigma=nan is not allowed: a number from 0 upward"),
        (lambda: poisson(0), "rate_per_s=0 is not allowed: a number above 0"),
        (lambda: gamma(1, -1), "cv=-1 is not allowed: a number from 0.001 to 1000"),
        (lambda: gamma(1, 1e-200), "cv=1e-200 is not allowed: a number from 0.001 to 1000"),
        (lambda: gamma(1, 1e200), r"cv=1e\+200 is not allowed: a number from 0.001 to 1000"),
        (lambda: fixed(10**10), "length=10000000000 is not allowed: at most 16777216"),
        (lambda: uniform(1, 10**10), "high=10000000000 is not allowed: at most 16777216"),
        (lambda: lognormal(1, 1, low=10**10), "low=10000000000 is not allowed: at most 16777216"),
        (lambda: steps(0), "num_requests=0 is not allowed: a whole number from 1 upward"),
        (lambda: steps(every=0), "every=0 is not allowed: a whole number from 1 upward"),
        (lambda: SharedPrefixes(num_prefixes=0, prefix_len=1), "num_prefixes=0 is not allowed"),
        (lambda: SharedPrefixes(num_prefixes=1, prefix_len=1, share=2), "share=2 is not allowed: a number from 0 to 1"),
        (lambda: independent_requests(0, prompt_len=fixed(1), output_len=fixed(1)), "num_requests=0 is not allowed"),
        (
            lambda: next(independent_requests(1, prompt_len=fixed(1), output_len=fixed(1), arrivals=poisson(1e-99))),
            "arrival=.* is not allowed: at most 1000000000 seconds",
        ),
        (
            lambda: Conversation(num_turns=fixed(1), message_len=fixed(1), answer_len=fixed(1), mean_think_s=-1),
            "mean_think_s=-1 is not allowed: a number of seconds from 0 upward",
        ),
        (
            lambda: sessions(
                1,
                Conversation(num_turns=fixed(1), message_len=fixed(1), answer_len=fixed(1), mean_think_s=1),
                arrivals=steps(),
            ),
            "arrivals in seconds",
        ),
        (
            lambda: sessions(
                1,
                Conversation(
                    num_turns=fixed(1), message_len=fixed(9), answer_len=fixed(1), mean_think_s=1, max_prompt_len=8
                ),
            ),
            "max_prompt_len=8 is not allowed: every first prompt is longer",
        ),
    ],
)
def test_wrong_numbers_are_named(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(ConfigError, match=message):
        wrong()
