"""Where two runs part, in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.trace.diff import diff, without_times
from nanovllm.trace.events import (
    Admitted,
    AnyEvent,
    BlocksAllocated,
    BlocksFreed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    RequestAdded,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.words import describe
from tests.trace.runs import Scenario, header, preempting_run, scenarios


def replaced(event: AnyEvent, **fields: Any) -> Any:
    return msgspec.structs.replace(event, **fields)


@given(scenarios())
@settings(max_examples=40)
def test_a_run_does_not_differ_from_itself_at_another_time_on_another_backend(scenario: Scenario) -> None:
    events = scenario.run()
    assert diff(events, scenario.run()) is None
    later = [
        replaced(event, **{name: (getattr(event, name) or 0) + 1 for name in event.TIME_FIELDS}) for event in events
    ]
    later[0] = replaced(events[0], backend="other", model="another", facts={"hardware": "third"})
    assert diff(events, later) is None
    assert diff(later, events) is None


@given(scenarios(), st.data())
@settings(max_examples=60)
def test_a_planted_change_is_found_where_it_is(scenario: Scenario, data: st.DataObject) -> None:
    events = scenario.run()
    index = data.draw(st.integers(1, len(events) - 1))
    changed = list(events)
    changed[index] = changed_decision(events[index])
    for a, b in ((events, changed), (changed, events)):
        difference = diff(a, b)
        assert difference is not None
        assert difference.event == index
        assert difference.options == []
        assert difference.decision is not None
        steps = [event.step for event in events if isinstance(event, StepStarted)]
        before = [event.step for event in events[:index] if isinstance(event, StepStarted)]
        assert difference.step in steps or not steps
        assert difference.step is None or difference.step >= max(before, default=0)


def changed_decision(event: AnyEvent) -> AnyEvent:
    name = next(n for n in reversed(event.__struct_fields__) if n not in event.TIME_FIELDS)
    value = getattr(event, name)
    if isinstance(value, list):
        return replaced(event, **{name: [*value, value[0]]})
    return replaced(event, **{name: value + 1 if isinstance(value, int) else f"{value}!"})


def test_what_each_did_is_told_in_words() -> None:
    opening: list[AnyEvent] = [TraceStarted(1, "", "", "", header()), StepStarted(41, 0.0, 0, 4, 1)]
    a = [*opening, Preempted(3, 1, [9], 31, 1), BlocksFreed(3, [9]), StepFinished(41, 1.0, "decode", 3)]
    b = [*opening, BlocksAllocated(1, [17]), DecodeScheduled([0, 1, 2, 3]), TokensAppended([0, 1, 2, 3], [5] * 4)]
    difference = diff(a, b)
    assert str(difference) == (
        "step 41: A preempted request 3 for 1; B gave request 1 block 17 and scheduled a decode of 4 requests"
    )


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (
            TokensAppended([4, 7], [1, 2]),
            TokensAppended([4, 7], [1, 3]),
            "both gave a token to 2 requests, but request 7 got 2 in A, 3 in B",
        ),
        (
            DecodeScheduled([1, 2]),
            DecodeScheduled([2, 1]),
            "both scheduled a decode of 2 requests, but requests[0] is 1 in A, 2 in B",
        ),
        (
            Preempted(3, 1, [9], 31, 1),
            Preempted(3, 1, [9], 30, 1),
            "both preempted request 3 for 1, but tokens_lost is 31 in A, 30 in B",
        ),
        (
            Preempted(3, 1, [9], 31, 1),
            Preempted(3, 1, [9, 8], 31, 1),
            "both preempted request 3 for 1, but blocks has 1 in A, 2 in B",
        ),
        (Held(3, "no_slot"), Held(3, "no_blocks"), "A held request 3 (no_slot); B held request 3 (no_blocks)"),
    ],
)
def test_the_same_kind_of_decision_is_told_apart(a: AnyEvent, b: AnyEvent, words: str) -> None:
    opening: list[AnyEvent] = [TraceStarted(1, "", "", "", header()), StepStarted(2, 0.0, 0, 4, 1)]
    assert str(diff([*opening, a], [*opening, b])) == f"step 2: {words}"


def test_what_only_one_policy_tells_is_no_decision() -> None:
    events = preempting_run()
    first = next(i for i, event in enumerate(events) if isinstance(event, ChunkScheduled))
    mixed: list[AnyEvent] = [replaced(events[0], policy="mixed"), *events[1:first], Admitted(0), *events[first:]]
    for a, b in ((events, mixed), (mixed, events)):
        difference = diff(a, b)
        assert difference is not None
        assert difference.decision is None
    # Under one policy, it is one.
    assert "step 0: A" in str(diff([events[0], *mixed[1:]], events))


def test_another_pool_is_told_and_what_is_free_in_it_is_not() -> None:
    events = preempting_run()
    larger: list[AnyEvent] = [
        replaced(event, free_blocks=event.free_blocks + 3) if isinstance(event, StepStarted) else event
        for event in events
    ]
    larger[0] = replaced(events[0], config={**events[0].config, "num_blocks": events[0].config["num_blocks"] + 3})
    assert str(diff(events, larger)) == "num_blocks is 4 in A, 7 in B\nthe decisions are the same"
    assert "7 free blocks" in str(diff(events, [events[0], *larger[1:]]))


def test_options_come_first() -> None:
    events = preempting_run()
    header_a = events[0]
    assert isinstance(header_a, TraceStarted)
    other = replaced(header_a, policy="mixed", config={**header_a.config, "num_blocks": 5})
    difference = diff(events, [other, *events[1:]])
    assert difference is not None
    assert difference.event is None
    assert str(difference).splitlines() == [
        "policy is prefill_first in A, mixed in B",
        "num_blocks is 4 in A, 5 in B",
        "the decisions are the same",
    ]
    fewer = {name: value for name, value in header_a.config.items() if name != "eos"}
    difference = diff([replaced(header_a, config=fewer), *events[1:]], [header_a, *events[1:5]])
    assert difference is not None
    assert difference.options == ["eos is not told in A, [] in B"]
    assert difference.event == 5


def test_one_that_ends_early_is_told() -> None:
    events = preempting_run()
    end = next(i for i, event in enumerate(events) if isinstance(event, StepFinished) and event.step == 3)
    assert str(diff(events, events[: end + 1])) == (
        f"step 4: B ends here, after {end + 1} events (it is incomplete: the trace ends with unfinished requests: "
        "0, 1); A started step 4 with 0 waiting, 2 running, 0 free blocks and preempted request 1 for 0"
    )
    assert str(diff(events[: end - 1], events)).startswith(
        f"step 3: A ends here, after {end - 1} events (it is incomplete: the trace ends within step 3); B gave a token"
    )
    more: list[AnyEvent] = [*events, RequestAdded("late", 99.0, 99.0, 1, 1)]
    assert str(diff(events, more)).endswith(
        f": A ends here, after {len(events)} events; B took in request late (1 prompt token, at most 1 to generate)"
    )


def test_the_empty_trace() -> None:
    assert diff([], []) is None
    assert str(diff([], preempting_run()[1:2])).startswith("before the first step: A ends here, after 0 events")


def test_every_event_has_words_and_a_decision_without_times() -> None:
    for event in preempting_run():
        assert describe(event)
        assert all(getattr(without_times(event), name) == 0.0 for name in event.TIME_FIELDS)
