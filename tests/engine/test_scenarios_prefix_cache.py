"""Prefix cache and block accounting: scenarios 14 to 26, each to the block and the token. The inputs are in
``scenarios.py``."""

from __future__ import annotations

import pytest

from nanovllm.engine.block_manager import HashFunction
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksHashed,
    Preempted,
    PrefixHit,
    RequestFinished,
    RequestId,
    TokensAppended,
)
from tests.engine import scenarios
from tests.engine.runs import Run, run_to_end
from tests.engine.scenarios import Scenario, own_tokens
from tests.fakes import HashBackend, expected_completion


def start(scenario: Scenario, **options: object) -> tuple[Engine, list[AnyEvent]]:
    """An engine for a test that goes step by step."""
    events: list[AnyEvent] = []
    backend = HashBackend(scenario.num_blocks, scenario.block_size)
    return Engine(scenario.config(**options), backend, clock=VirtualClock(), emit=events.append), events


def assert_outputs(scenario: Scenario, run: Run) -> None:
    for request in scenario.requests:
        expected = expected_completion(request.prompt_token_ids, request.sampling_params.max_tokens)
        assert run.completions[request.request_id] == expected


def test_14_failed_admission_leaks_nothing() -> None:
    scenario = scenarios.FAILED_ADMISSION
    engine, events = start(scenario)
    for result in engine.run(scenario.requests):
        if result.step < 3:  # from step 1 on the second request is looked at in vain
            assert engine.scheduler.block_manager.ref_counts == [1, 1, 1, 0, 0, 0]
    run = Run(engine, events)
    assert [step.held for step in run.steps[1:4]] == [[(1, "no_blocks")]] * 3
    assert run.chunks_of(1) == [(4, "8+13")]
    assert run.hit_tokens == [(1, 8)]  # one look-up that counts, not one per retry
    assert run.num_free_blocks == 6


def test_15_free_hits_are_charged() -> None:
    run = scenarios.FREE_HITS_ARE_CHARGED.run()
    assert run.steps[2].free_blocks == 4
    assert [step.held for step in run.steps[2:11]] == [[(2, "no_blocks")]] * 9
    assert run.chunks_of(2) == [(11, "8+9")]
    assert_outputs(scenarios.FREE_HITS_ARE_CHARGED, run)


def test_16_hits_are_claimed_before_new_blocks_are_taken() -> None:
    run = scenarios.HITS_CLAIMED_FIRST.run()
    assert run.chunks_of(2) == [(2, "8+5")]
    [hit] = run.events_of(PrefixHit)
    new = run.events_of(BlocksAllocated)[-1]
    assert sorted(hit.blocks + new.blocks) == [0, 1, 2, 3]
    assert_outputs(scenarios.HITS_CLAIMED_FIRST, run)


def test_17_fully_cached_prompt() -> None:
    run = scenarios.FULLY_CACHED_PROMPT.run()
    assert [run.chunks_of(request) for request in range(3)] == [[(0, "0+8")], [(1, "4+4")], [(2, "8+1")]]
    assert_outputs(scenarios.FULLY_CACHED_PROMPT, run)


def test_18_same_step_same_prefix() -> None:
    run = scenarios.SAME_STEP_SAME_PREFIX.run()
    assert run.chunks_of(0) == run.chunks_of(1) == [(0, "0+5")]
    assert run.chunks_of(3) == [(3, "4+1")]
    [hit] = run.events_of(PrefixHit)
    assert hit.blocks == [2]  # the copy published last, free by now
    assert_outputs(scenarios.SAME_STEP_SAME_PREFIX, run)


def test_18_the_other_copy_is_still_found() -> None:
    run = scenarios.SAME_STEP_COPY_EVICTED.run()
    assert run.events_of(BlockEvicted)[0].block == 2
    assert run.chunks_of(3) == [(3, "4+1")]
    [hit] = run.events_of(PrefixHit)
    assert hit.blocks == [0]
    assert_outputs(scenarios.SAME_STEP_COPY_EVICTED, run)


def test_19_not_shareable_before_computed() -> None:
    scenario = scenarios.NOT_YET_COMPUTED
    run = scenario.run()
    assert run.chunks_of(0) == [(0, "0+4"), (1, "4+4"), (2, "8+4")]
    assert run.chunks_of(1) == [(3, "12+1")]
    assert_outputs(scenario, run)


def test_19_an_aborted_chunk_leaves_what_it_computed() -> None:
    scenario = scenarios.NOT_YET_COMPUTED
    engine, events = start(scenario)
    engine.add(scenario.requests[0])
    engine.step()
    engine.abort(0)
    engine.add(scenario.requests[1])
    engine.step()
    assert [event.blocks for event in events if isinstance(event, BlocksHashed)][:1] == [[0]]
    assert [event.tokens for event in events if isinstance(event, PrefixHit)] == [4]


@pytest.mark.parametrize("scenario", [scenarios.STALE_HASH, scenarios.STALE_HASH_LONGER])
def test_20_recycled_block_stale_hash(scenario: Scenario) -> None:
    run = scenario.run()
    assert run.hit_tokens == []
    assert_outputs(scenario, run)


def test_21_deepest_block_first() -> None:
    run = scenarios.DEEPEST_FIRST.run()
    assert run.events_of(BlockEvicted)[0].block == 2
    assert run.chunks_of(2) == [(2, "8+5")]
    assert_outputs(scenarios.DEEPEST_FIRST, run)


def test_22_chunks_that_straddle_blocks() -> None:
    scenario = scenarios.STRADDLING_CHUNKS
    engine, events = start(scenario)
    contents = engine.scheduler.block_manager.contents
    hashed = [sum(map(bool, contents)) for _ in engine.run(scenario.requests)]
    run = Run(engine, events)
    assert run.chunks_of(0) == [(0, "0+3"), (1, "3+3"), (2, "6+3"), (3, "9+1")]
    assert hashed[:4] == [0, 1, 2, 2]
    assert_outputs(scenario, run)


def test_23_resumption_length() -> None:
    scenario = scenarios.RESUMPTION_LENGTH
    run = scenario.run()
    assert run.preemptions == [(4, 1)]
    assert run.chunks_of(1) == [(0, "0+4"), (9, "0+8")]
    assert len(run.completions[1]) == 10
    assert run.steps_with_token(1)[0] == 0
    assert_outputs(scenario, run)


@pytest.mark.parametrize("hash_function", [lambda tokens, parent: 0, lambda tokens, parent: parent])
def test_24_hash_collision(hash_function: HashFunction) -> None:
    scenario = scenarios.HASH_COLLISION
    run = run_to_end(scenario.config(), scenario.requests, hash_function=hash_function)
    # The second request has the first one's second block behind another first block; the third has both.
    assert run.hit_tokens == [(2, 8)]
    assert_outputs(scenario, run)


@pytest.mark.parametrize(
    ("scenario", "num_steps", "victim", "num_tokens"),
    [
        pytest.param(scenarios.RESUMPTION_LENGTH, 0, 1, 0, id="waiting"),
        pytest.param(scenarios.STRADDLING_CHUNKS, 1, 0, 0, id="between chunks"),
        pytest.param(scenarios.RESUMPTION_LENGTH, 3, 1, 3, id="running"),
        pytest.param(scenarios.RESUMPTION_LENGTH, 5, 1, 4, id="preempted"),
        pytest.param(scenarios.RESUMPTION_LENGTH, 10, 1, 5, id="resumed"),
    ],
)
def test_25_abort_in_every_state(scenario: Scenario, num_steps: int, victim: int, num_tokens: int) -> None:
    engine, events = start(scenario)
    for request in scenario.requests:
        engine.add(request)
    for _ in range(num_steps):
        engine.step()
    assert engine.abort(victim)
    assert not engine.abort(victim)
    for _ in engine.run():
        pass
    run = Run(engine, events)
    assert run.finish_reasons.pop(victim) == "aborted"
    assert set(run.finish_reasons.values()) <= {"aborted", "length"}
    assert len(run.completions.get(victim, [])) == num_tokens
    assert run.num_free_blocks == scenario.num_blocks


def test_25_abort_when_finished() -> None:
    engine, events = start(scenarios.BLOCK_SIZE_ONE)
    for _ in engine.run(scenarios.BLOCK_SIZE_ONE.requests):
        pass
    num_events = len(events)
    assert not engine.abort(0)
    assert not engine.abort("never there")
    assert len(events) == num_events


def test_25_abort_in_the_step_of_its_eos() -> None:
    events: list[AnyEvent] = []
    scheduler = Scheduler(scenarios.STRADDLING_CHUNKS.config(max_num_batched_tokens=64, eos=7), emit=events.append)
    seq = Sequence(own_tokens(0, 5), SamplingParams(max_tokens=4))
    other = Sequence(own_tokens(1, 5), SamplingParams(max_tokens=4))
    scheduler.add(seq)
    scheduler.add(other)
    batch = scheduler.schedule()
    assert scheduler.abort(seq)
    assert scheduler.postprocess(batch.sequences, [7, 8], batch.is_prefill) == []
    assert (seq.completion_token_ids, seq.finish_reason) == ([], "aborted")
    assert other.completion_token_ids == [8]
    assert [event.requests for event in events if isinstance(event, TokensAppended)] == [[1]]
    assert [event.request for event in events if isinstance(event, RequestFinished)] == [0]
    scheduler.abort(other)
    assert scheduler.block_manager.num_free_blocks == 4


def test_26_hits_of_the_preempted_are_their_own() -> None:
    run = scenarios.RANDOM_PROMPTS_UNDER_PRESSURE.run()
    preempted: set[RequestId] = set()
    for event in run.events:
        if isinstance(event, Preempted):
            preempted.add(event.request)
        assert not isinstance(event, PrefixHit) or event.request in preempted
    assert len(run.preemptions) == 7
    assert run.hit_tokens
