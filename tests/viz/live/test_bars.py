"""A request's tokens in cells."""

from __future__ import annotations

from hypothesis import given, strategies as st

from nanovllm.trace.replay import Replay
from nanovllm.trace.state.request_state import RequestState
from tests.trace.runs import Scenario, scenarios
from viz import palette
from viz.live.bars import Part, budget_parts, cells_of, request_parts
from viz.live.follower import Follower
from viz.palette import COMPUTED, GENERATED, HIT, REMAINING, SCHEDULED, Look

LOOKS = st.sampled_from([None, *palette.PROGRESS])
PARTS = st.lists(st.tuples(LOOKS, st.integers(0, 10_000)), max_size=7)


def parts(state: RequestState, hit_tokens: int = 0, chunk_tokens: int = 0) -> list[Part]:
    return [part for part in request_parts(state, hit_tokens, chunk_tokens) if part[1]]


def test_a_life_in_bars() -> None:
    def state(num_tokens: int, cached: int, scheduled: int = 0) -> RequestState:
        return RequestState("a", 0.0, 40, 10, num_tokens, num_cached_tokens=cached, num_scheduled_tokens=scheduled)

    assert parts(state(40, 0)) == [(REMAINING, 40), (None, 10)]
    computing = [(HIT, 16), (SCHEDULED, 20), (REMAINING, 4), (None, 10)]
    assert parts(state(40, 16, 20), hit_tokens=16, chunk_tokens=20) == computing
    assert parts(state(40, 36), hit_tokens=16, chunk_tokens=20) == computing, "the same once it is computed"
    assert parts(state(41, 40), hit_tokens=16, chunk_tokens=4) == [
        *[(HIT, 16), (COMPUTED, 20), (SCHEDULED, 4), (GENERATED, 1), (None, 9)]
    ]
    assert parts(state(44, 43), hit_tokens=16) == [(HIT, 16), (COMPUTED, 24), (GENERATED, 3), (GENERATED, 1), (None, 6)]
    assert parts(state(44, 0)) == [(REMAINING, 40), (GENERATED, 4), (None, 6)], "preempted: what it said is kept"
    assert parts(state(45, 44), hit_tokens=32, chunk_tokens=12) == [
        (HIT, 32),
        (SCHEDULED, 12),
        (GENERATED, 1),
        (None, 5),
    ]


@given(scenarios())
def test_every_token_of_every_request_has_its_place(scenario: Scenario) -> None:
    follower = Follower(Replay())
    for event in scenario.run():
        follower.apply(event)
        for request, state in follower.replay.requests.items():
            if state.status == "finished":
                continue
            is_prefilled = follower.activities.get(request) is palette.PREFILL
            chunk = follower.replay.scheduled[request] if is_prefilled else 0
            bar = request_parts(state, follower.narrator.hits.get(request, 0), chunk)
            assert all(number >= 0 for _, number in bar)
            assert sum(number for _, number in bar) == state.num_prompt_tokens + state.max_tokens


@given(PARTS, st.integers(0, 200))
def test_cells_fill_the_bar_and_lose_no_part(parts: list[Part], width: int) -> None:
    cells = cells_of(parts, width)
    kept: list[Look | None] = [look for look, number in parts if number]
    assert sum(number for _, number in cells) == (width if kept else 0)
    if width >= len(kept):
        assert [look for look, _ in cells] == kept
        assert all(number > 0 for _, number in cells)


def test_cells_are_in_proportion() -> None:
    assert cells_of([(HIT, 30), (COMPUTED, 60), (REMAINING, 10)], 10) == [(HIT, 3), (COMPUTED, 6), (REMAINING, 1)]
    assert cells_of([(HIT, 1), (COMPUTED, 10_000)], 10) == [(HIT, 1), (COMPUTED, 9)]


def test_a_budget() -> None:
    assert budget_parts(20, 0, 64) == [(SCHEDULED, 20), (GENERATED, 0), (REMAINING, 44)]
    assert budget_parts(0, 3, 64) == [(SCHEDULED, 0), (GENERATED, 3), (REMAINING, 61)]
    assert budget_parts(0, 3, 2)[-1] == (REMAINING, 0)
