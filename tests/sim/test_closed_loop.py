"""Requests that wait for others, simulated: they come when those have ended, and then as any others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given

from nanovllm.config import Config
from nanovllm.errors import ConfigError
from nanovllm.trace.check import check
from nanovllm.trace.events import AnyEvent, RequestAdded, RequestFinished, RequestId, RequestRejected, StepStarted
from sim import simulate
from sim.workload import WorkloadRequest, in_order_of_arrival, read_workload, write_workload
from tests.sim.closed_loads import closed_loads
from tests.sim.runs import SMALL, SecondPerToken, as_bytes, of_kind, requests, run
from tests.strategies import configs


def trace_of(config: Config, load: list[WorkloadRequest]) -> list[AnyEvent]:
    return simulate(config, load, cost_model=SecondPerToken()).events


def ends_in(events: list[AnyEvent]) -> dict[RequestId, float]:
    return {event.request: event.time for event in events if isinstance(event, (RequestFinished, RequestRejected))}


@given(configs(), closed_loads())
def test_each_comes_its_delay_after_the_last_it_waits_for(config: Config, load: list[WorkloadRequest]) -> None:
    events = trace_of(config, load)
    added = {event.request: event for event in events if isinstance(event, RequestAdded)}
    ends = ends_in(events)
    assert ends.keys() == {request.id for request in load}
    for request in load:
        due_s = max((ends[awaited] for awaited in request.after), default=request.arrival or 0.0) + request.delay
        if request.id in added:
            assert added[request.id].arrival == due_s <= added[request.id].time
        else:
            assert ends[request.id] >= due_s
    assert check(events, complete=True) == []


@given(configs(), closed_loads())
def test_the_same_load_makes_the_same_trace(config: Config, load: list[WorkloadRequest]) -> None:
    assert as_bytes(trace_of(config, load)) == as_bytes(trace_of(config, load))


@given(configs(), closed_loads())
def test_requests_with_the_arrivals_of_the_trace_make_the_same_trace(
    config: Config, load: list[WorkloadRequest]
) -> None:
    events = trace_of(config, load)
    refused = {event.request for event in events if isinstance(event, RequestRejected)}
    # Of one that is refused, a trace does not tell the arrival; what waits for it is handed over with the next step.
    assume(not any(request.id in refused for request in load))
    by_id = {request.id: request for request in load}
    again = [
        msgspec.structs.replace(by_id[event.request], arrival=event.arrival, after=(), delay=0.0)
        for event in events
        if isinstance(event, RequestAdded)
    ]
    assert as_bytes(trace_of(config, again)) == as_bytes(events)


@given(load=closed_loads())
def test_a_file_keeps_what_waits_for_what(
    load: list[WorkloadRequest], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("load") / "load.jsonl"
    write_workload(path, load)
    in_order = in_order_of_arrival(load)
    assert read_workload(path) == in_order
    assert sorted(in_order, key=lambda request: int(request.id)) == load
    seen: set[RequestId] = set()
    for request in in_order:
        assert seen.issuperset(request.after)
        seen.add(request.id)
    assert in_order_of_arrival(in_order) == in_order


def test_two_turns_by_hand() -> None:
    # A second a token: a prompt of 3 and two more tokens take 5 s; 2.5 s later, a prompt of 4 and one more.
    first, other = requests((3, 3, 0), (4, 2, 6))
    second = WorkloadRequest(id="second", prompt_len=4, max_tokens=2, after=0, delay=2.5)  # type: ignore[arg-type]
    result = run([first, second])
    assert [event.time for event in of_kind(result, StepStarted)] == [0, 3, 4, 7.5, 11.5]
    [_, turn] = result.metrics.requests
    assert (turn.arrival_s, turn.queueing_s, turn.time_to_first_token_s, turn.end_to_end_s) == (7.5, 0, 4, 5)
    # While another one's prompt is computed, from 6 to 10, the second arrives: its latencies count from there.
    result = run([first, second, other])
    turn = result.metrics.requests[-1]
    assert [event.time for event in of_kind(result, StepStarted)] == [0, 3, 4, 6, 10, 14]
    assert (turn.request, turn.arrival_s, turn.queueing_s) == ("second", 7.5, 2.5)


def test_a_slower_server_is_asked_less_often() -> None:
    def chats(answer_len: int) -> list[WorkloadRequest]:
        first = WorkloadRequest(id="0", prompt_len=4, max_tokens=answer_len)
        later = [
            WorkloadRequest(id=f"{n}", prompt_len=4, max_tokens=answer_len, after=(f"{n - 1}",), delay=10)
            for n in range(1, 5)
        ]
        return [first, *later]

    quick, slow = ([event.arrival for event in of_kind(run(chats(n)), RequestAdded)] for n in (1, 21))
    assert quick == [0, 14, 28, 42, 56]
    assert slow == [0, 34, 68, 102, 136]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (["x"], "after='x' is not allowed: the id of a request that stands before it and arrives in seconds"),
        ([1], "after=1 is not allowed: the id of a request that stands before it"),
        (["step"], "after='step' is not allowed: the id of a request that stands before it and arrives in seconds"),
    ],
)
def test_a_list_must_have_what_is_waited_for(after: Any, message: str) -> None:
    waiting = WorkloadRequest(id=0, prompt_len=4, max_tokens=2, after=after)
    load = [WorkloadRequest(id="step", prompt_len=4, max_tokens=2, arrival_step=1), waiting, *requests((4, 2, 0))]
    with pytest.raises(ConfigError, match=message):
        simulate(SMALL, [*load[:-1], msgspec.structs.replace(load[-1], id=1)], cost_model=SecondPerToken())
