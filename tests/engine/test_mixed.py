"""The policy ``mixed``: scenarios 10 to 13 and others, to the step, the token and the block."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.trace.check import check
from nanovllm.trace.events import Admitted, BlocksAllocated, BlocksFreed, DecodeScheduled, Preempted, StepStarted
from nanovllm.trace.replay import Replay
from tests.engine import scenarios
from tests.engine.runs import Run
from tests.engine.scenarios import Scenario
from tests.engine.test_properties import cases, run


def run_mixed(scenario: Scenario, **options: object) -> Run:
    result = scenario.run(policy="mixed", **options)
    assert check(result.events) == []
    return result


def test_10_who_runs_gets_a_token_in_every_step() -> None:
    result = run_mixed(scenarios.PREFILL_STARVES_DECODE)
    assert result.steps_with_token(0) == [0, 1, 2, 3]
    assert [step.phase for step in result.steps[:4]] == ["prefill", "mixed", "mixed", "mixed"]
    assert [(step.decoded, step.chunks) for step in result.steps[1:3]] == [
        ([0], [(1, 0, 7)]),
        ([0], [(1, 7, 1), (2, 0, 6)]),
    ]


def test_11_any_prompt_may_be_chunked() -> None:
    result = run_mixed(scenarios.BUDGET_BEHIND_THE_HEAD)
    assert [step.num_tokens for step in result.steps] == [8, 7]
    assert [step.chunks for step in result.steps] == [[(0, 0, 6), (1, 0, 2)], [(1, 2, 5), (2, 0, 2)]]
    assert [step.held for step in result.steps] == [[(2, "no_budget")], []]


@pytest.mark.parametrize(("caching", "num_tokens"), [(True, 47), (False, 51)])
def test_12_a_prompt_is_admitted_when_all_of_it_fits(caching: bool, num_tokens: int) -> None:
    result = run_mixed(scenarios.NEXT_CHUNK_ONLY, enable_prefix_caching=caching)
    assert result.preemptions == [(6, 1)]
    assert result.num_computed_tokens == num_tokens


def test_12_admission_by_the_next_chunk_thrashes() -> None:
    result = run_mixed(scenarios.NEXT_CHUNK_ONLY, enable_prefix_caching=False, admit_by="chunk")
    assert result.preemptions == [(step, 1) for step in (6, 9, 11, 13, 15, 17)]
    assert result.num_computed_tokens == 93


def test_12_what_the_prefix_cache_keeps_need_not_be_computed_again() -> None:
    """The same as admitted by the whole prompt: what is lost is found again before anybody takes it."""
    result = run_mixed(scenarios.NEXT_CHUNK_ONLY, admit_by="chunk")
    assert result.preemptions == [(6, 1)]
    assert result.num_computed_tokens == 47


def test_13_a_cap_lets_others_in_beside_a_long_prompt() -> None:
    """Steps count from 0. The cap binds only while the short request is there."""
    without = run_mixed(scenarios.LONG_PROMPT)
    assert without.steps_with_token(1) == [5]
    assert without.chunks_of(0) == [(step, f"{8 * step}+8") for step in range(5)]
    capped = run_mixed(scenarios.LONG_PROMPT, max_prefill_tokens_per_request=4)
    assert capped.steps_with_token(1) == [1]
    assert capped.chunks_of(0) == [(0, "0+8"), (1, "8+4"), (2, "12+8"), (3, "20+8"), (4, "28+8"), (5, "36+4")]


GROWING = Scenario(0, "Blocks chunk by chunk", "", ((6, 5, 0), (14, 2, 1)), num_blocks=6, max_num_batched_tokens=8)


def test_blocks_are_taken_chunk_by_chunk() -> None:
    result = run_mixed(GROWING)
    taken = [(event.request, event.blocks) for event in result.events_of(BlocksAllocated)]
    assert taken == [(0, [0, 1]), (1, [2, 3]), (1, [4, 5]), (0, [5]), (1, [5])]
    [preempted] = result.events_of(Preempted)
    assert (preempted.request, preempted.for_request, preempted.blocks) == (1, 0, [5, 4, 3, 2])
    # It comes back to three blocks of its own, when the other has ended: 4 of 6 do not fit beside 3.
    assert result.chunks_of(1) == [(1, "0+7"), (2, "7+7"), (5, "12+3")]
    assert [event.blocks for event in result.events_of(BlocksFreed)] == [[5, 4, 3, 2], [5, 1, 0], [5, 4, 3, 2]]


def test_none_is_admitted_in_a_step_that_preempted() -> None:
    """Request 2 would fit the blocks that request 1 gives up."""
    result = run_mixed(Scenario(0, "", "", (*GROWING.lines, (3, 1, 3)), num_blocks=6, max_num_batched_tokens=8))
    assert (result.steps[3].preempted, result.steps[3].chunks, result.steps[3].held) == ([1], [], [])


def test_a_prompt_without_blocks_waits_for_those_that_are_in_the_step() -> None:
    """Request 0 is still prefilled when 1 decodes already, and needs a block that there is not. As 1 has its token of
    each step, 0 waits until 1, which came later, needs one too: then 1 is the one to go."""
    lines = ((16, 1, 0), (3, 8, 0))
    options = {"admit_by": "chunk", "max_prefill_tokens_per_request": 4, "enable_prefix_caching": False}
    result = run_mixed(Scenario(0, "", "", lines, num_blocks=4, max_num_batched_tokens=8), **options)
    assert result.chunks_of(0) == [(0, "0+4"), (1, "4+4"), (6, "8+4"), (7, "12+4")]
    assert [step.held for step in result.steps[:7]] == [[], [], *[[(0, "no_blocks")]] * 4, []]
    assert result.preemptions == [(6, 1)]


def test_only_the_tail_is_asked_for_blocks() -> None:
    """Request 1 needs a block. Behind it 2 has some and is not in the step, but the last, 3, is: both prompts wait."""
    lines = ((1, 16, 0), (12, 2, 1), (12, 2, 1), (1, 12, 1))
    options = {"admit_by": "chunk", "max_prefill_tokens_per_request": 4, "enable_prefix_caching": False}
    result = run_mixed(Scenario(0, "", "", lines, num_blocks=6, max_num_batched_tokens=32), **options)
    step = result.steps[3]
    assert (step.decoded, step.held) == ([0, 3], [(1, "no_blocks"), (2, "no_blocks")])
    assert all(number > 3 for number, _ in result.preemptions)


def test_the_watermark_holds_new_requests_only() -> None:
    without, reserved = (run_mixed(scenarios.ONE_VICTIM, watermark_blocks=blocks) for blocks in (0, 2))
    assert (len(without.preemptions), without.num_computed_tokens) == (2, 50)
    assert (len(reserved.preemptions), reserved.num_computed_tokens) == (0, 41)


def test_what_was_promised_to_a_prompt_is_not_given_to_another() -> None:
    """Request 0 has 1 of its 4 blocks; of the 5 others, only 2 are left for 1, which needs 3."""
    lines = ((16, 1, 0), (12, 1, 0))
    scenario = Scenario(0, "", "", lines, num_blocks=6, max_num_batched_tokens=8)
    result = run_mixed(scenario, max_prefill_tokens_per_request=4)
    assert result.steps[0].held == [(1, "no_blocks")]
    assert result.preemptions == []
    by_chunk = run_mixed(scenario, max_prefill_tokens_per_request=4, admit_by="chunk")
    assert by_chunk.steps[0].chunks == [(0, 0, 4), (1, 0, 4)]


@settings(max_examples=200)
@given(case=cases(policy="mixed"))
def test_whoever_runs_gets_a_token_or_is_preempted(case: tuple[Config, list[Request]]) -> None:
    """Decodes come first: none of those whose prompts are complete is left out, however many prompts there are."""
    replay = Replay()
    decoding: set[object] = set()
    for event in run(*case).events:
        if isinstance(event, StepStarted):
            assert not decoding
            decoding = {request for request in replay.running if not replay.requests[request].is_prefilling}
        elif isinstance(event, DecodeScheduled):
            decoding -= set(event.requests)
        elif isinstance(event, Preempted):
            decoding.discard(event.request)
        elif isinstance(event, Admitted):
            assert not decoding, "a prompt came before a decode"
        replay.apply(event)
