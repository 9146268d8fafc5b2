"""A trace, step by step: as ``Timeline`` has it, without an index."""

from __future__ import annotations

from hypothesis import given, settings

from nanovllm.trace.by_step import by_step
from nanovllm.trace.events import AnyEvent, RequestFinished, RequestRejected
from nanovllm.trace.timeline import Timeline
from tests.trace.runs import Scenario, preempting_run, scenarios


@given(scenarios())
@settings(max_examples=30)
def test_each_event_belongs_to_the_step_that_a_timeline_gives_it(scenario: Scenario) -> None:
    events = scenario.run()
    timeline = Timeline(events)
    groups: dict[int, list[AnyEvent]] = {}
    for step, group in by_step(events):
        groups.setdefault(step, []).extend(group)
    if timeline.steps:
        assert groups == {step: list(timeline.events_of(step)) for step in timeline.steps}
    assert [event for group in groups.values() for event in group] == events[1:]


def test_what_follows_the_last_step_comes_under_its_number() -> None:
    events = preempting_run()
    last = events[-1]
    end = RequestFinished("z", 9.0, "aborted")
    *_, (step_before, group_before), (step, group) = by_step([*events, end])
    assert (step, group) == (step_before, [end])
    assert group_before[-1] == last


def test_a_trace_without_steps() -> None:
    refused = RequestRejected("a", 0.0, "too_long", 0, 0)
    assert list(by_step([preempting_run()[0], refused])) == [(0, [refused])]
    assert list(by_step([preempting_run()[0]])) == []
