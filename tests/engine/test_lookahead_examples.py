"""One step ahead, example by example: the order of work, ends, times."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from nanovllm.engine.backend import AsynchronousBackend
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.trace.check import check
from nanovllm.trace.events import (
    BlocksAllocated,
    BlocksFreed,
    DecodeScheduled,
    Preempted,
    RequestAdded,
    RequestFinished,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from tests.engine.runs import Run
from tests.engine.watched import CONFIG, Watched, own_prompt, request
from tests.fakes import HashBackend, expected_completion

# ---- the order of work -------------------------------------------------------------------------------------------


def test_a_step_is_submitted_before_the_result_of_the_one_before_is_asked_for() -> None:
    watched = Watched()
    watched.run(request(0, max_tokens=4))
    assert ", ".join(watched.work) == ("submit 0, submit 1, result 0, submit 2, result 1, submit 3, result 2, result 3")


def test_without_lookahead_each_waits_for_the_other() -> None:
    watched = Watched(replace(CONFIG, lookahead=False))
    watched.run(request(0, max_tokens=2))
    assert watched.work == ["submit 0", "result 0", "submit 1", "result 1"]


def test_a_backend_that_cannot_be_given_steps_early_is_not() -> None:
    backend = HashBackend(16, 4)
    assert not isinstance(backend, AsynchronousBackend)
    engine = Engine(CONFIG, backend, clock=VirtualClock())
    assert [result.step for result in engine.run([request(0)])] == [0, 1, 2]
    assert not engine._steps.are_in_flight


def test_the_first_turn_has_no_result() -> None:
    watched = Watched()
    watched.engine.add(request(0, max_tokens=2))
    assert watched.engine.turn() is None
    results = [watched.engine.turn(), watched.engine.turn()]
    assert [(result.step, result.num_tokens) for result in results if result is not None] == [(0, 4), (1, 1)]
    assert watched.engine.scheduler.is_finished()
    assert not watched.engine._steps.are_in_flight


def test_a_step_by_hand_brings_a_result() -> None:
    watched = Watched()
    watched.engine.add(request(0, max_tokens=2))
    first = watched.engine.step()
    assert (first.step, first.finished, watched.engine.step_index) == (0, [], 2)
    second = watched.engine.step()
    assert (second.step, [seq.request_id for seq in second.finished], watched.engine.step_index) == (1, [0], 2)


def test_an_empty_step_is_not_submitted() -> None:
    watched = Watched()
    result = watched.engine.step()
    assert (result.batch.sequences, result.num_tokens, result.finished) == ([], 0, [])
    assert watched.work == []
    assert watched.events[1:] == [StepStarted(0, 0.0, 0, 0, 16), StepFinished(0, 0.0, "decode", 0)]


# ---- ends --------------------------------------------------------------------------------------------------------

FIRST, SECOND, THIRD = expected_completion(own_prompt(0), 3)


def test_an_end_of_sequence_is_found_out_in_the_step_after_and_what_was_computed_is_dropped() -> None:
    watched = Watched(replace(CONFIG, eos=SECOND))
    results = watched.run(request(0, max_tokens=9), request(1, max_tokens=3))
    assert [[seq.request_id for seq in result.finished] for result in results] == [[], [0], [1]]
    assert [result.num_tokens for result in results] == [8, 2, 2]
    other = expected_completion(own_prompt(1), 3)
    assert watched.events[-14:] == [
        StepStarted(1, 0.008, 0, 2, 14),
        BlocksAllocated(0, [2]),
        BlocksAllocated(1, [3]),
        DecodeScheduled([0, 1]),
        TokensAppended([0, 1], [SECOND, other[1]]),
        StepFinished(1, 0.010, "decode", 2),
        StepStarted(2, 0.010, 0, 2, 12),
        DecodeScheduled([0, 1]),
        RequestFinished(0, 0.010, "eos"),
        BlocksFreed(0, [2, 0]),
        TokensAppended([1], [other[2]]),
        RequestFinished(1, 0.012, "length"),
        BlocksFreed(1, [3, 1]),
        StepFinished(2, 0.012, "decode", 2),
    ]


def test_an_end_of_sequence_as_the_last_token_is_the_reason_and_costs_no_step() -> None:
    watched = Watched(replace(CONFIG, eos=THIRD))
    [seq] = watched.run(request(0, max_tokens=3))[-1].finished
    assert (seq.finish_reason, seq.completion_token_ids) == ("eos", [FIRST, SECOND, THIRD])
    assert watched.told(RequestFinished) == [RequestFinished(0, 0.006, "eos")]
    assert len(watched.backend.calls) == 3


def test_one_that_is_preempted_while_its_last_token_is_on_its_way_ends_in_the_queue() -> None:
    """In step 1 both need a block and one is left. Request 1 would come back, but has ended in step 0."""
    stop = expected_completion(own_prompt(1), 1)
    watched = Watched(replace(CONFIG, num_kvcache_blocks=3))
    watched.run(request(0, max_tokens=3), request(1, max_tokens=5, stop_token_ids=stop))
    first = watched.events.index(Preempted(1, 1, [1], 4, 1))
    assert watched.events[first : first + 4] == [
        Preempted(1, 1, [1], 4, 1),
        BlocksFreed(1, [1]),
        DecodeScheduled([0]),
        RequestFinished(1, 0.008, "stop"),
    ]
    assert Run(watched.engine, watched.events).completions == {0: [FIRST, SECOND, THIRD], 1: stop}
    assert check(watched.events) == []


def test_one_that_is_preempted_while_its_token_is_on_its_way_computes_it_when_it_comes_back() -> None:
    watched = Watched(replace(CONFIG, num_kvcache_blocks=3, enable_prefix_caching=False))
    watched.run(request(0, max_tokens=3), request(1, max_tokens=5))
    assert watched.backend.calls[:4] == [[(0, 0, 4), (1, 0, 4)], [(0, 4, 1)], [(0, 5, 1)], [(1, 0, 5)]]
    assert Run(watched.engine, watched.events).completions[1] == expected_completion(own_prompt(1), 5)


def test_a_stop_condition_is_asked_after_each_token_and_sees_no_unknown_one() -> None:
    asked: list[list[int]] = []

    def stops(seq: Sequence) -> bool:
        asked.append(seq.completion_token_ids)
        assert seq.token_ids == [*own_prompt(0), *asked[-1]]
        return seq.last_token == THIRD

    watched = Watched()
    watched.run(msgspec.structs.replace(request(0, max_tokens=9), stop_condition=stops))
    assert asked == [[FIRST], [FIRST, SECOND], [FIRST, SECOND, THIRD]]
    assert [event.reason for event in watched.told(RequestFinished)] == ["stop"]


def test_an_id_is_free_again_in_the_step_after_its_end() -> None:
    watched = Watched()
    watched.run(request(0, max_tokens=2), request(0, max_tokens=2, arrival_step=2))
    assert watched.engine.rejected == []
    assert [event.time for event in watched.told(RequestFinished)] == pytest.approx([0.005, 0.010])


def test_a_token_that_is_not_known_yet_is_never_hashed() -> None:
    seq = Sequence([1, 2, 3])
    manager = BlockManager(4, 2)
    manager.allocate(seq, 0)
    seq.append_token(UNKNOWN_TOKEN)
    seq.num_scheduled_tokens = 4
    with pytest.raises(AssertionError, match="is hashed with a token that is not known yet"):
        manager.hash_blocks(seq)
    assert manager.can_allocate(seq) == 0  # a look-up leaves the newest token out
    assert seq.completion_token_ids == []


# ---- time --------------------------------------------------------------------------------------------------------


def times(watched: Watched) -> list[float]:
    return pytest.approx([event.time for event in watched.told(StepStarted, StepFinished)])


def test_a_step_decided_early_starts_when_the_one_before_is_over() -> None:
    watched = Watched()
    watched.run(request(0, max_tokens=3))
    assert times(watched) == [0.0, 0.004, 0.004, 0.005, 0.005, 0.006]


def test_a_step_decided_late_starts_then() -> None:
    watched = Watched()
    watched.backend.on_submit = lambda call: watched.clock.advance(0.010)
    watched.engine.add(request(0, max_tokens=3))
    first = watched.engine.step()
    watched.clock.advance(1.0)
    results = [first, *watched.engine.run()]
    assert times(watched) == [0.0, 0.024, 0.024, 1.035, 1.035, 1.036]
    told = [time for result in results for time in (result.started_s, result.finished_s)]
    assert times(watched) == told


def test_what_comes_while_a_step_is_computed_is_handed_over_when_it_is_over() -> None:
    watched = Watched()
    watched.run(request(0, length=10, max_tokens=3), request(1, arrival_step=1, max_tokens=1))
    late = watched.told(RequestAdded)[1]
    assert (late.time, late.arrival) == (0.010, 0.0)


def test_arrivals_by_time_are_handed_over_before_the_next_decision() -> None:
    """One step later than without lookahead: when it comes, the next step is decided already."""
    for is_ahead, step in ((False, 2), (True, 3)):
        watched = Watched(replace(CONFIG, lookahead=is_ahead))
        late = msgspec.structs.replace(request(1, max_tokens=1), arrival_step=None, arrival_s=0.0045)
        watched.run(msgspec.structs.replace(request(0, max_tokens=9), arrival_step=None), late)
        assert [number for number, *_ in Run(watched.engine, watched.events).chunks_of(1)] == [step]
