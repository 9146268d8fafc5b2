"""A run that grows: at every frame the same state, forwards, backwards and after having forgotten."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.trace.events import AnyEvent, BlocksAllocated, StepFinished
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.replay import Replay
from tests.trace.runs import Scenario, preempting_run, scenarios
from tests.viz.live.scenes import busy_run, history_of, shown_state
from tests.viz.web.traces import tight_run
from viz.live import history as history_module
from viz.live.follower import Follower, Landmark
from viz.live.history import CONTEXT_FRAMES, History


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few hundred events shall have several snapshots too."""
    monkeypatch.setattr(history_module, "_SHORTEST_SEGMENT_EVENTS", 40)


def states_of(events: list[AnyEvent]) -> list[object]:
    """What is to be seen at the end of each frame, by a follower that never goes back."""
    follower, states = Follower(Replay()), []
    for event in events:
        follower.apply(event)
        if not follower.is_frame_open:
            states.append(copy.deepcopy(shown_state(follower)))
    return [*states, shown_state(follower)] if follower.is_frame_open else states


@given(scenarios(), st.data())
@settings(max_examples=40)
def test_every_frame_is_the_same_from_wherever_one_comes(scenario: Scenario, data: st.DataObject) -> None:
    events = scenario.run()
    states, history = states_of(events), history_of(events)
    assert (history.first, history.last) == (0, len(states) - 1)
    for frame in data.draw(st.lists(st.integers(0, history.last), max_size=12)):
        assert shown_state(history.at(frame)) == states[frame]


def test_going_through_a_long_run_backwards() -> None:
    events = busy_run(30, 40)
    states, history = states_of(events), history_of(events)
    assert len(history._segments) > 5
    for frame in reversed(range(len(states))):
        assert shown_state(history.at(frame)) == states[frame]


def test_a_run_can_be_looked_up_while_it_grows() -> None:
    events = tight_run()
    states, history = states_of(events), History()
    for event in events:
        history.append(event)
        if isinstance(event, StepFinished):
            assert shown_state(history.at(history.last // 2)) == states[history.last // 2]
            assert shown_state(history.at(history.last)) == states[history.last]


def test_what_is_too_old_is_forgotten() -> None:
    events = busy_run(200, 40)
    states, history = states_of(events), history_of(events, max_events=2000)
    kept = sum(len(segment.events) for segment in history._segments)
    assert kept < 2400 < len(events)
    assert 0 < history.first < history.last - CONTEXT_FRAMES
    for frame in (history.last, history.first + CONTEXT_FRAMES, history.last - 1):  # its sentences are remembered too
        assert shown_state(history.at(frame)) == states[frame]
    assert history.at(history.first).frame == history.first
    assert history.frame_before(history.first, 1.0) is None


def test_counts_are_those_of_the_metrics() -> None:
    for events in (tight_run(), busy_run(30, 40), preempting_run()):
        tally, metrics = history_of(events).newest.tally, compute_metrics(events)
        assert tally.generated_tokens == metrics.output_tokens
        assert tally.computed_tokens == metrics.computed_tokens
        assert (tally.hit_tokens, tally.looked_up_tokens) == (metrics.hit_tokens, metrics.looked_up_tokens)
        assert tally.num_preemptions == metrics.num_preemptions
        assert tally.num_finished == metrics.num_requests


def test_landmarks_are_found_in_both_directions() -> None:
    history = history_of(tight_run())
    frames = [frame for frame in range(history.last + 1) if Landmark.PREEMPTION in history.at(frame).landmarks]
    assert len(frames) > 1
    assert history.find(Landmark.PREEMPTION, -1, 1) == frames[0]
    assert history.find(Landmark.PREEMPTION, frames[0], 1) == frames[1]
    assert history.find(Landmark.PREEMPTION, frames[1], -1) == frames[0]
    assert history.find(Landmark.PREEMPTION, frames[-1], 1) is None


def test_a_contradiction_ends_the_history_right_before_it() -> None:
    events = tight_run()
    wrong = next(i for i, event in enumerate(events) if i > len(events) // 2 and isinstance(event, BlocksAllocated))
    broken = [*events[:wrong], BlocksAllocated("nobody", [0]), *events[wrong:]]
    history = history_of(broken)
    assert history.problem is not None
    assert history.problem.startswith(f"the trace contradicts itself: run.jsonl:{wrong + 1}: ")
    assert history.num_events == wrong
    assert shown_state(history.at(history.last)) == shown_state(history_of(events[:wrong]).newest)


def test_the_first_event_is_the_header() -> None:
    history = history_of(tight_run()[1:])
    assert history.problem is not None
    assert history.last == -1
