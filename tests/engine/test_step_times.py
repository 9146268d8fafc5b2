"""The parts of a step's time, as a backend that knows them tells the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nanovllm.engine.backend import ObservedBackend, StepTimes
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.steps import StepResult
from nanovllm.trace.events import AnyEvent, StepFinished, TraceStarted
from tests.engine.watched import CONFIG, request
from tests.fakes import DeferredHashBackend, DeferredStep, HashBackend

SUBMITTING_S, DEVICE_S = 0.25, 8.0


class BusyClock(VirtualClock):
    """Each look at it takes a second: whatever the engine does between two looks shows."""

    def now(self) -> float:
        self.advance(1.0)
        return super().now()


class ObservedHashBackend(DeferredHashBackend):
    """Tells the times above, of each step another: the step's number is added to both."""

    def __init__(self, clock: VirtualClock, **options: object) -> None:
        super().__init__(16, 4, **options)
        self.facts = {"device": "none"}
        self.step_times = StepTimes(-1.0, -1.0)
        self.clock = clock

    def compute(self, step: DeferredStep) -> list[int]:
        self.step_times = StepTimes(SUBMITTING_S + step.call, DEVICE_S + step.call)
        self.clock.advance(100.0)  # waiting for the device: no work of the program's
        return super().compute(step)


def run(lookahead: bool, make_clock: Callable[[], VirtualClock], **options: object) -> tuple[list[StepResult], ...]:
    clock, events = make_clock(), list[AnyEvent]()
    config = replace(CONFIG, lookahead=lookahead)
    engine = Engine(config, ObservedHashBackend(clock, **options), clock=clock, emit=events.append)
    results = list(engine.run([request(0, max_tokens=3), request(1, max_tokens=2)]))
    assert isinstance(events[0], TraceStarted)
    assert events[0].facts == {"device": "none", "lookahead": lookahead}
    return results, [event for event in events if isinstance(event, StepFinished)]


@pytest.mark.parametrize("lookahead", [False, True])
def test_the_times_of_each_step_are_told_with_it(lookahead: bool) -> None:
    results, finished = run(lookahead, VirtualClock)
    expected = [(SUBMITTING_S + step, DEVICE_S + step) for step in range(3)]
    assert [(result.host_s, result.device_s) for result in results] == expected
    assert [(event.host, event.device) for event in finished] == expected


@pytest.mark.parametrize("lookahead", [False, True])
def test_the_engines_own_work_is_the_hosts_and_waiting_is_not(lookahead: bool) -> None:
    """Deciding and taking in are a second each, by a clock on which each look takes one; looking ahead, tokens are
    filled in by themselves."""
    results, finished = run(lookahead, BusyClock)
    engine_s = 3.0 if lookahead else 2.0
    expected = [SUBMITTING_S + step + engine_s for step in range(3)]
    assert [result.host_s for result in results] == expected
    assert [event.host for event in finished] == expected


@pytest.mark.parametrize("lookahead", [False, True])
def test_a_step_that_fails_or_computes_nothing_has_no_times(lookahead: bool) -> None:
    results, finished = run(lookahead, VirtualClock, failing_calls={0})
    assert results[0].error is not None
    assert (results[0].host_s, finished[0].host, finished[0].device) == (None, None, None)
    clock = VirtualClock()
    engine = Engine(replace(CONFIG, lookahead=lookahead), ObservedHashBackend(clock), clock=clock)
    assert engine.step()[-2:] == (None, None)


def test_a_backend_may_know_nothing_of_its_times() -> None:
    events = list[AnyEvent]()
    backend = HashBackend(16, 4)
    assert not isinstance(backend, ObservedBackend)
    engine = Engine(CONFIG, backend, clock=VirtualClock(), emit=events.append)
    assert [(result.host_s, result.device_s) for result in engine.run([request(0, max_tokens=1)])] == [(None, None)]
    assert isinstance(events[0], TraceStarted)
    assert events[0].facts == {}
