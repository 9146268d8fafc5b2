"""One step ahead: the same decisions, the same outputs, in another order of work."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.engine.sequence import UNKNOWN_TOKEN
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.check import check
from nanovllm.trace.events import RequestAdded
from tests.engine import scenarios
from tests.engine.invariants import check_contents, check_pool
from tests.engine.runs import Run, run_to_end
from tests.engine.test_properties import cases
from tests.engine.watched import Watched
from tests.fakes import expected_completion
from tests.strategies import VOCAB_SIZE, prompts, sampling_params


def ignoring_eos(requests: list[Request]) -> list[Request]:
    """The requests, ending by their length only."""
    return [
        msgspec.structs.replace(
            request, sampling_params=SamplingParams(max_tokens=request.sampling_params.max_tokens, ignore_eos=True)
        )
        for request in requests
    ]


@settings(max_examples=300)
@given(case=cases(), failing_calls=st.sets(st.integers(0, 20), max_size=2))
def test_where_length_alone_ends_requests_the_trace_is_the_same(
    case: tuple[Config, list[Request]], failing_calls: set[int]
) -> None:
    """Byte for byte, times too: here the host takes none. Only what arrives by step comes while the step before is
    still computed."""
    config, requests = case[0], ignoring_eos(case[1])
    options = {"vocab_size": VOCAB_SIZE, "failing_calls": failing_calls}
    runs = [Watched(replace(config, lookahead=is_ahead), **options) for is_ahead in (False, True)]
    results = [run.run(*requests) for run in runs]
    behind, ahead = (
        [
            msgspec.structs.replace(event, arrival=event.time) if isinstance(event, RequestAdded) else event
            for event in run.events
        ]
        for run in runs
    )
    encode = msgspec.json.Encoder().encode_lines
    assert encode(behind) == encode(ahead)
    assert runs[0].backend.calls == runs[1].backend.calls
    told = [
        [(r.step, r.num_tokens, r.started_s, r.finished_s, [s.request_id for s in r.finished]) for r in of_run]
        for of_run in results
    ]
    assert told[0] == told[1]


@settings(max_examples=300)
@given(case=cases(), stop_at=st.sampled_from([None, 2, 3]))
def test_outputs_and_reasons_are_the_same(case: tuple[Config, list[Request]], stop_at: int | None) -> None:
    config, requests = case
    if stop_at is not None:
        requests = [
            msgspec.structs.replace(
                request, stop_condition=lambda seq: sum(seq.completion_token_ids) % 5 == stop_at and seq.last_token > 0
            )
            for request in requests
        ]
    behind = run_to_end(replace(config, lookahead=False), requests, vocab_size=VOCAB_SIZE)
    ahead = run_to_end(replace(config, lookahead=True), requests, vocab_size=VOCAB_SIZE)
    assert ahead.completions == behind.completions
    assert ahead.finish_reasons == behind.finish_reasons
    assert ahead.rejections == behind.rejections
    assert check(ahead.events) == []


@pytest.mark.parametrize(
    "scenario",
    [value for value in vars(scenarios).values() if isinstance(value, scenarios.Scenario)],
    ids=lambda scenario: f"{scenario.number} {scenario.title}",
)
def test_the_workloads_that_break_schedulers_are_decided_the_same(scenario: scenarios.Scenario) -> None:
    assert scenario.run(lookahead=True).events == scenario.run(lookahead=False).events


actions = st.one_of(
    st.just("turn"),
    st.just("turn"),
    st.just("turn"),
    st.tuples(prompts(), sampling_params()),
    st.integers(0, 9),
)


@settings(max_examples=300)
@given(case=cases(lookahead=True), life=st.lists(actions, max_size=60))
def test_requests_may_come_and_be_aborted_at_any_time(case: tuple[Config, list[Request]], life: list[object]) -> None:
    config = case[0]
    watched = Watched(config, vocab_size=VOCAB_SIZE)
    engine, seqs = watched.engine, []
    for number, action in enumerate([*case[1], *life]):
        if action == "turn":
            engine.turn()
        elif isinstance(action, int):
            alive = list(engine.scheduler.sequences)
            assert not alive or engine.abort(alive[action % len(alive)])
        else:
            prompt, params = action if isinstance(action, tuple) else (action.prompt_token_ids, action.sampling_params)
            needed = -(-(len(prompt) + params.max_tokens - 1) // config.kvcache_block_size)
            if needed <= config.num_kvcache_blocks:
                seqs.append(engine.add(Request(request_id=number, prompt_token_ids=prompt, sampling_params=params)))
        check_pool(engine.scheduler.block_manager, engine.scheduler.sequences.values())
        check_contents(engine.scheduler.block_manager)
        assert not any(UNKNOWN_TOKEN in seq.token_ids for seq in seqs)
    for _ in engine.run():
        pass
    assert check(watched.events) == []
    completions = Run(engine, watched.events).completions
    for seq in seqs:
        ends = seq.end_token_ids
        expected = expected_completion(seq.prompt_token_ids, seq.max_tokens, vocab_size=VOCAB_SIZE, end_token_ids=ends)
        assert seq.is_finished
        assert seq.completion_token_ids == completions.get(seq.request_id, [])
        if seq.finish_reason == "aborted":
            expected = expected[: seq.num_completion_tokens]
        assert seq.completion_token_ids == expected
