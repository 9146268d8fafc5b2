"""Requests that wait for others: when they arrive, however those end, and who comes first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from nanovllm.engine.arrivals import Arrivals
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.request import Request
from nanovllm.errors import RequestError, StepError
from nanovllm.trace.events import AnyEvent, RequestAdded, RequestFinished, StepStarted
from tests.engine.test_engine import TimedBackend, finish, make, request


def follow_up(request_id: int, *after: int, delay_s: float = 0.0, max_tokens: int = 3) -> Request:
    return request(request_id, max_tokens=max_tokens, after=after, delay_s=delay_s)  # type: ignore[arg-type]


def arrivals_in(events: list[AnyEvent]) -> list[tuple[object, float, float]]:
    """(request, arrival, handed over) of each."""
    return [(event.request, event.arrival, event.time) for event in events if isinstance(event, RequestAdded)]


class FailingAtFirst(TimedBackend):
    """Cannot compute its first step."""

    def execute(self, batch: ScheduledBatch) -> list[int]:
        tokens = super().execute(batch)
        if len(self.calls) == 1:
            raise StepError("the first step was told to fail")
        return tokens


# ---- when they arrive --------------------------------------------------------------------------------------------


def test_two_turns() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=3), follow_up(1, 0, delay_s=1.5, max_tokens=2)])
    assert [event.time for event in events if isinstance(event, StepStarted)] == [0.0, 1.0, 2.0, 4.5, 5.5]
    assert [(event.request, event.time) for event in events if isinstance(event, RequestFinished)] == [
        (0, 3.0),
        (1, 6.5),
    ]
    assert arrivals_in(events) == [(0, 0.0, 0.0), (1, 4.5, 4.5)]


def test_whoever_waits_for_several_waits_for_the_last() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=6), request(1, max_tokens=2), follow_up(2, 0, 1, delay_s=0.25)])
    assert arrivals_in(events)[-1] == (2, 6.25, 6.25)


def test_a_follow_up_may_wait_for_a_follow_up() -> None:
    engine, events = make()
    finish(engine, [request(0), follow_up(1, 0, delay_s=1), follow_up(2, 1, 0, delay_s=1)])
    assert arrivals_in(events) == [(0, 0.0, 0.0), (1, 4.0, 4.0), (2, 8.0, 8.0)]


def test_it_arrives_while_others_run_and_is_handed_over_before_their_next_step() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=2), follow_up(1, 0, delay_s=0.5), request(2, max_tokens=9)])
    assert arrivals_in(events) == [(0, 0.0, 0.0), (2, 0.0, 0.0), (1, 2.5, 3.0)]


def test_what_has_ended_before_it_is_read_is_not_waited_for() -> None:
    engine, events = make()
    first, second = request(0, max_tokens=1), request(1, max_tokens=3, arrival_s=10)
    finish(engine, [first, second, follow_up(2, 0, 1)])
    assert arrivals_in(events)[-1] == (2, 13.0, 13.0)


def test_those_that_arrive_together_keep_their_order() -> None:
    engine, events = make()
    finish(engine, [request(0), follow_up(1, 0, delay_s=1), follow_up(2, 0, delay_s=1), request(3, arrival_s=4)])
    assert [name for name, *_ in arrivals_in(events)] == [0, 1, 2, 3]
    engine, events = make()
    talk = [request(0), follow_up(1, 0, delay_s=0.75), follow_up(2, 0, delay_s=0.5)]
    finish(engine, [*talk, request(3, max_tokens=9)])
    assert arrivals_in(events)[2:] == [(2, 3.5, 4.0), (1, 3.75, 4.0)]


# ---- however the others end --------------------------------------------------------------------------------------


def test_it_comes_after_a_refusal() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=999), follow_up(1, 0, delay_s=2), follow_up(2, 0)])
    assert [name for name, _ in engine.rejected] == [0]
    assert arrivals_in(events) == [(2, 0.0, 0.0), (1, 2.0, 2.0)]


def test_it_comes_after_a_failed_step() -> None:
    engine, events = make(FailingAtFirst(16, 4))
    finish(engine, [request(0), follow_up(1, 0, delay_s=2)])
    assert [event.reason for event in events if isinstance(event, RequestFinished)] == ["error", "length"]
    assert arrivals_in(events) == [(0, 0.0, 0.0), (1, 3.0, 3.0)]


def test_it_comes_after_an_abort() -> None:
    engine, events = make()
    run = engine.run([request(0, max_tokens=9), follow_up(1, 0, delay_s=2)])
    next(run)
    assert engine.abort(0)
    list(run)
    assert arrivals_in(events) == [(0, 0.0, 0.0), (1, 3.0, 3.0)]


def test_it_does_not_come_after_the_refusal_of_another_one_of_the_same_id() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=5), follow_up(1, 0), request(0, arrival_s=2)])
    assert [error.reason for _, error in engine.rejected] == ["duplicate_id"]
    assert arrivals_in(events) == [(0, 0.0, 0.0), (1, 5.0, 5.0)]


def test_it_comes_whoever_takes_the_turn_in_which_the_other_ends() -> None:
    engine, events = make()
    run = engine.run([request(0, max_tokens=3), follow_up(1, 0, delay_s=1)])
    next(run)
    engine.step()
    engine.step()
    list(run)
    assert arrivals_in(events) == [(0, 0.0, 0.0), (1, 4.0, 4.0)]


# ---- what is read, and what is not allowed ------------------------------------------------------------------------


def test_conversations_without_end_are_read_no_further_than_needed() -> None:
    num_read = 0

    def endless() -> Iterator[Request]:
        nonlocal num_read
        for talk in count():
            for turn in range(3):
                num_read += 1
                name = 3 * talk + turn
                yield follow_up(name, name - 1) if turn else request(name, arrival_s=20.0 * talk)

    engine, events = make()
    run = engine.run(endless())
    for _ in range(40):
        next(run)
    assert len(arrivals_in(events)) == 14
    assert num_read == 16


@pytest.mark.parametrize(
    "load",
    [
        [follow_up(1, 0)],
        [follow_up(1, 0), request(0)],
        [request(0), request(2, arrival_s=50), follow_up(1, 0)],
    ],
    ids=["unknown", "before", "too late"],
)
def test_what_it_waits_for_must_be_there(load: list[Request]) -> None:
    engine, _ = make()
    problem = "request 1 waits for 0, of which nothing is there .*: it must come behind them, and before any request"
    with pytest.raises(RequestError, match=problem):
        finish(engine, load)


def test_an_end_is_told_once_to_those_who_wait() -> None:
    arrivals = Arrivals([request(0), follow_up(1, 0, delay_s=0.5), follow_up(2, 0, 1)])
    assert [due.request_id for due in arrivals.pop_while(lambda _: True)] == [0]
    assert (arrivals.head, arrivals.num_awaited) == (None, 2)
    arrivals.note_ended(0, 2.0)
    arrivals.note_ended("of somebody else", 2.5)
    [released] = arrivals.pop_while(lambda due: due.arrival_s <= 2.5)
    assert (released.request_id, released.arrival_s) == (1, 2.5)
    assert (arrivals.head, arrivals.num_awaited) == (None, 1)
