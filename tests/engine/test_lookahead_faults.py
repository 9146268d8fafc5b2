"""One step ahead when something goes wrong: steps that cannot be computed, aborts, Ctrl-C, a broken backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from nanovllm.errors import StepError
from nanovllm.trace.check import check
from nanovllm.trace.events import RequestFinished, StepFinished, StepStarted
from nanovllm.trace.files.completeness import why_unfinished
from tests.engine.runs import Run
from tests.engine.watched import CONFIG, Watched, own_prompt, request
from tests.fakes import expected_completion


def raising(error: BaseException, call: int) -> Callable[[int], None]:
    """For a hook of the backend: raises ``error`` once, in that call."""
    errors = [error]

    def hook(current: int) -> None:
        if current == call and errors:
            raise errors.pop()

    return hook


def completions(watched: Watched) -> dict[object, list[int]]:
    return Run(watched.engine, watched.events).completions


# ---- steps that cannot be computed ---------------------------------------------------------------------------------


def test_a_step_that_cannot_be_submitted_fails_its_requests_after_the_step_before() -> None:
    watched = Watched(failing_calls={2})
    results = watched.run(request(0, max_tokens=6), request(1, max_tokens=2), request(2, arrival_step=3))
    assert [type(result.error) for result in results[:4]] == [type(None), type(None), StepError, type(None)]
    finished = [[(seq.request_id, seq.finish_reason) for seq in result.finished] for result in results]
    assert finished[:3] == [[], [(1, "length")], [(0, "error")]]
    assert watched.work[:6] == ["submit 0", "submit 1", "result 0", "submit 2", "result 1", "submit 3"]
    assert completions(watched) == {
        name: expected_completion(own_prompt(name), n) for name, n in ((0, 2), (1, 2), (2, 3))
    }
    assert check(watched.events) == []


def test_the_first_step_may_fail_too() -> None:
    watched = Watched(failing_calls={0})
    results = watched.run(request(0), request(1, arrival_step=1))
    assert isinstance(results[0].error, StepError)
    assert (results[0].started_s, results[0].finished_s) == (0.0, 0.0)
    assert completions(watched) == {1: expected_completion(own_prompt(1), 3)}


def test_a_request_that_has_ended_does_not_fail_with_the_step_it_was_in() -> None:
    first = expected_completion(own_prompt(0), 1)
    watched = Watched(failing_calls={1})
    watched.run(request(0, max_tokens=6, stop_token_ids=first), request(1, max_tokens=6))
    assert Run(watched.engine, watched.events).finish_reasons == {0: "stop", 1: "error"}


# ---- a broken backend ----------------------------------------------------------------------------------------------


def test_a_fault_in_submitting_comes_after_the_result_of_the_step_before() -> None:
    watched = Watched()
    watched.backend.on_submit = raising(RuntimeError("broken"), 2)
    run = watched.engine.run([request(0, max_tokens=6), request(1, max_tokens=2)])
    assert [next(run).step, [seq.request_id for seq in next(run).finished]] == [0, [1]]
    with pytest.raises(RuntimeError, match="broken"):
        next(run)
    assert watched.engine.abort(0)
    assert not watched.engine._steps.are_in_flight
    assert len(watched.run(request(3, max_tokens=2))[-1].finished) == 1


def test_an_engine_whose_backend_broke_amid_a_step_says_so_each_time() -> None:
    def break_down(call: int) -> None:
        if call >= 1:
            raise RuntimeError("no such device")

    watched = Watched()
    watched.backend.on_result = break_down
    run = watched.engine.run([request(0, max_tokens=6)])
    assert next(run).step == 0
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no such device"):
            watched.engine.turn()


def test_a_turn_that_was_broken_off_can_be_repeated() -> None:
    """A Ctrl-C that does not wait, while the host waits for a result."""
    watched = Watched(replace(CONFIG, eos=expected_completion(own_prompt(0), 3)[2]))
    watched.backend.on_result = raising(KeyboardInterrupt(), 2)
    run = watched.engine.run([request(0, max_tokens=9), request(1, max_tokens=6)])
    seqs = list(next(run).batch.sequences)
    next(run)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert [seq.completion_token_ids for seq in seqs] == [expected_completion(own_prompt(name), 2) for name in (0, 1)]
    watched.run()
    assert completions(watched) == {0: expected_completion(own_prompt(0), 3), 1: expected_completion(own_prompt(1), 6)}
    assert check(watched.events) == []


def test_what_is_aborted_after_a_turn_was_broken_off_leaves_a_whole_trace() -> None:
    watched = Watched()
    watched.backend.on_result = raising(KeyboardInterrupt(), 2)
    with pytest.raises(KeyboardInterrupt):
        watched.run(request(0, max_tokens=9), request(1, max_tokens=3))
    assert watched.engine.abort(0)
    assert not watched.engine.abort(1)  # its last token was on its way
    watched.engine.settle()
    assert completions(watched)[1] == expected_completion(own_prompt(1), 3)
    assert check(watched.events) == []


def test_a_stop_condition_that_fails_holds_no_event_back() -> None:
    def stops(_seq: object) -> bool:
        raise ZeroDivisionError

    watched = Watched()
    watched.engine.add(msgspec.structs.replace(request(0, max_tokens=2), stop_condition=stops))
    with pytest.raises(ZeroDivisionError):
        watched.engine.step()
    assert StepFinished(0, 0.004, "prefill", 4) in watched.events


# ---- aborts and the end ----------------------------------------------------------------------------------------------


def test_one_that_is_aborted_while_its_step_is_in_flight_gets_no_further_token() -> None:
    watched = Watched()
    run = watched.engine.run([request(0, max_tokens=9), request(1, max_tokens=4)])
    next(run)
    seq = next(run).batch.sequences[0]
    assert watched.engine.abort(0)
    assert not watched.engine.abort(0)
    results = list(run)
    assert [[seq.request_id for seq in result.finished] for result in results] == [[], [1]]
    assert (seq.finish_reason, len(seq.completion_token_ids)) == ("aborted", 2)
    assert check(watched.events) == []


def test_aborting_within_the_turn_keeps_the_token_that_was_on_its_way() -> None:
    watched = Watched()
    watched.backend.on_submit = lambda call: call == 2 and watched.engine.abort(0)
    watched.run(request(0, max_tokens=9), request(1, max_tokens=4))
    assert completions(watched) == {0: expected_completion(own_prompt(0), 2), 1: expected_completion(own_prompt(1), 4)}
    assert check(watched.events) == []


def test_aborted_within_the_turn_stays_aborted_whatever_the_token_says() -> None:
    stop = expected_completion(own_prompt(0), 2)[1:]
    watched = Watched()
    watched.backend.on_submit = lambda call: call == 2 and watched.engine.abort(0)
    results = watched.run(request(0, max_tokens=9, stop_token_ids=stop), request(1, max_tokens=4))
    assert [[seq.request_id for seq in result.finished] for result in results] == [[], [], [], [1]]
    assert Run(watched.engine, watched.events).finish_reasons == {0: "aborted", 1: "length"}


def test_settling_closes_the_step_that_nobody_waits_for() -> None:
    watched = Watched()
    run = watched.engine.run([request(0, max_tokens=9)])
    next(run)
    watched.engine.abort(0)
    assert why_unfinished(watched.events) == "the trace ends within step 1"
    watched.engine.settle()
    assert why_unfinished(watched.events) is None
    assert watched.events[-1] == StepFinished(1, 0.005, "decode", 1)
    assert list(run) == []


def test_settling_waits_for_nobody_who_is_still_there() -> None:
    watched = Watched()
    run = watched.engine.run([request(0, max_tokens=9)])
    next(run)
    num_events = len(watched.events)
    watched.engine.settle()
    assert len(watched.events) == num_events


def test_a_run_goes_on_to_the_end_of_a_step_that_computes_nothing_of_use() -> None:
    watched = Watched()
    stop = expected_completion(own_prompt(0), 2)[1:]
    results = watched.run(request(0, max_tokens=9, stop_token_ids=stop))
    assert [(result.step, len(result.finished)) for result in results] == [(0, 0), (1, 1), (2, 0)]
    assert [event.step for event in watched.told(StepStarted)] == [event.step for event in watched.told(StepFinished)]
    assert [event.reason for event in watched.told(RequestFinished)] == ["stop"]
