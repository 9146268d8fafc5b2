"""Moving about in a trace: every moment is the same, whichever way one gets there."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.config import Config
from nanovllm.errors import ContradictionError
from nanovllm.trace import timeline
from nanovllm.trace.events import AnyEvent, StepFinished, TokensAppended
from nanovllm.trace.replay import Replay
from nanovllm.trace.timeline import Timeline
from tests.trace.runs import Scenario, preempting_run, request, scenarios


def state_of(replay: Replay) -> dict[str, Any]:
    """All that a replay holds, as plain values that do not change with it."""
    pool = replay.pool
    state = {name: repr(value) for name, value in vars(replay).items() if name not in ("pool", "unsettled")}
    state["unsettled"] = repr([s for s in replay.unsettled if s.num_scheduled_tokens])
    return state | {name: repr(value) for name, value in vars(pool).items()}


@given(scenarios(), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_every_event_can_be_reached_from_anywhere(scenario: Scenario, draws: random.Random) -> None:
    events = scenario.run()
    expected, replay = [], Replay()
    for event in events:
        replay.apply(event)
        expected.append(state_of(replay))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_SHORTEST_STRIDE_EVENTS", 16)
        patch.setattr(timeline, "_NUM_FINE_SNAPSHOTS", 4)
        moments = Timeline(events)
    indices = draws.sample(range(len(events)), len(events))
    for index in indices:
        assert state_of(moments.at_event(index)) == expected[index]
        moments.at_event(index).pool.ref_counts.append(99)  # the caller's own


def test_a_step_has_what_came_before_it_and_no_gap() -> None:
    events = preempting_run()
    moments = Timeline(events)
    assert moments.steps == list(range(len(moments.steps)))
    assert [event for step in moments.steps for event in moments.events_of(step)] == events[1:]
    for step in moments.steps:
        end = moments.events_of(step)[-1]
        assert isinstance(end, StepFinished)
        assert end.step == step == moments.at(step).step


def test_a_skipped_step_shows_the_one_before() -> None:
    config = Config(num_kvcache_blocks=8, kvcache_block_size=4, max_num_batched_tokens=64, max_num_seqs=8)
    events = Scenario(config, [request("a", range(4), 1), request("b", range(4), 1, arrival_step=5)]).run()
    moments = Timeline(events)
    assert moments.steps == [0, 5]
    assert moments.at(-1).num_events == 1
    assert moments.at(3).num_events == moments.at(0).num_events
    assert moments.events_of(3) == []
    assert moments.at(5).num_events == moments.at(99).num_events == len(events)


def test_a_step_that_was_cut_ends_with_the_trace() -> None:
    events = preempting_run()
    cut = next(i for i, event in enumerate(events) if isinstance(event, TokensAppended)) + 1
    moments = Timeline(events[:cut])
    assert moments.steps == [0]
    assert moments.at(0).is_in_step
    assert moments.range_of(0) == range(1, cut)


def test_a_trace_without_steps_has_its_end() -> None:
    events = preempting_run()[:2]
    assert list(Timeline(events).at(0).waiting) == [0]
    assert Timeline(events[:1]).at(7).num_events == 1


def test_what_is_not_there_is_said() -> None:
    events = preempting_run()
    with pytest.raises(IndexError, match=f"there is no event {len(events)}: the trace has {len(events)}"):
        Timeline(events).at_event(len(events))
    twice: list[AnyEvent] = events[:2] * 2
    with pytest.raises(ContradictionError, match=r"run\.jsonl:3: a second trace_started"):
        Timeline(twice, "run.jsonl")
