"""Liveness and limits: scenarios 1 to 11, each to the step and the token. The inputs are in ``scenarios.py``."""

from __future__ import annotations

from itertools import zip_longest

import pytest

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.errors import ConfigError, RequestError, UserError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, RequestRejected
from tests.engine import scenarios
from tests.engine.scenarios import Scenario
from tests.fakes import HashBackend, expected_completion


def test_01_oversized_head() -> None:
    run = scenarios.OVERSIZED_HEAD.run()
    [rejected] = run.events_of(RequestRejected)
    assert (rejected.request, rejected.reason) == (0, "pool_too_small")
    assert (rejected.needed_blocks, rejected.num_blocks) == (4, 3)
    assert run.finish_reasons == {1: "length"}
    assert [step.finished for step in run.steps] == [[1]]


@pytest.mark.parametrize("scenario", [scenarios.OUTPUT_TOO_LONG, scenarios.OUTPUT_ONE_TOO_LONG])
def test_02_prompt_fits_output_cannot(scenario: Scenario) -> None:
    run = scenario.run()
    [rejected] = run.events_of(RequestRejected)
    assert (rejected.reason, rejected.needed_blocks, rejected.num_blocks) == ("pool_too_small", 3, 2)
    assert run.steps == []


def test_02_exactly_fitting() -> None:
    run = scenarios.OUTPUT_JUST_FITS.run()
    assert run.rejections == {}
    assert len(run.steps) == 4
    assert run.preemptions == []


def test_03_no_slot() -> None:
    run = scenarios.NO_SLOT.run()
    assert len(run.steps) == 9
    assert run.chunks_of(2) == [(6, "0+4")]
    assert [step.held for step in run.steps[1:6]] == [[(2, "no_slot")]] * 5
    assert max(len(step.chunks) + len(step.decoded) for step in run.steps) == 2


def test_04_one_victim_three_times() -> None:
    run = scenarios.ONE_VICTIM.run()
    assert len(run.steps) == 16
    assert run.num_computed_tokens == 51
    assert run.preemptions == [(1, 3), (4, 3), (10, 3)]


def test_04_a_watermark_spares_the_victim() -> None:
    run = scenarios.ONE_VICTIM.run(watermark_blocks=2)
    assert run.preemptions == []
    assert (run.num_computed_tokens, len(run.steps)) == (41, 19)
    assert run.finish_reasons == dict.fromkeys(range(4), "length")


def test_05_order_of_the_preempted() -> None:
    run = scenarios.ORDER_OF_THE_PREEMPTED.run()
    assert [request for _, request in run.preemptions] == [2, 1]
    entries = [request for step in run.steps for request, _, _ in step.chunks]
    assert entries == [0, 1, 2, 1, 2, 3]  # 3 came in step 2, before both had come back


def test_06_nothing_left_to_schedule() -> None:
    scenario = scenarios.NOTHING_LEFT
    backend = HashBackend(scenario.num_blocks, scenario.block_size)
    engine = Engine(scenario.config(), backend, clock=VirtualClock())
    engine.add(scenario.requests[0])
    engine.step()
    assert engine.abort(0)
    result = engine.step()
    assert (result.batch.sequences, result.finished, result.error) == ([], [], None)
    assert len(backend.calls) == 1


@pytest.mark.parametrize("max_tokens", [0, -1, 2.0, "2", True, None])
def test_07_unusable_max_tokens(max_tokens: object) -> None:
    with pytest.raises(ConfigError, match=r"max_tokens=.* is not allowed: a whole number from 1 upward"):
        SamplingParams(max_tokens=max_tokens)


@pytest.mark.parametrize(
    ("prompt", "reason"), [([], "empty_prompt"), ([3, 100], "bad_token_id"), ([3, -1], "bad_token_id")]
)
def test_07_unusable_prompt(prompt: list[int], reason: str) -> None:
    events: list[AnyEvent] = []
    config = Config(kvcache_block_size=4)
    engine = Engine(config, HashBackend(8, 4), clock=VirtualClock(), emit=events.append, vocab_size=100)
    bad = Request(request_id="bad", prompt_token_ids=prompt, sampling_params=SamplingParams(max_tokens=1))
    good = Request(request_id="good", prompt_token_ids=[99], sampling_params=SamplingParams(max_tokens=1))
    assert [seq.request_id for result in engine.run([bad, good]) for seq in result.finished] == ["good"]
    [(request_id, error)] = engine.rejected
    assert (request_id, error.reason) == ("bad", reason)
    assert isinstance(error, (RequestError, UserError, ValueError))


def test_08_block_size_one() -> None:
    run = scenarios.BLOCK_SIZE_ONE.run()
    assert len(run.completions[0]) == 5
    assert run.completions[0] == expected_completion(scenarios.BLOCK_SIZE_ONE.requests[0].prompt_token_ids, 5)


def test_09_two_engines_interleaved() -> None:
    one = scenarios.ONE_VICTIM
    sizes = (1, 4)  # the same requests; block sizes differ
    alone = [one.run(kvcache_block_size=size, num_kvcache_blocks=20 // size) for size in sizes]
    event_lists: list[list[AnyEvent]] = [[], []]
    engines = [
        Engine(
            one.config(kvcache_block_size=size), HashBackend(20 // size, size), clock=VirtualClock(), emit=events.append
        )
        for size, events in zip(sizes, event_lists, strict=True)
    ]
    for _ in zip_longest(*(engine.run(one.requests) for engine in engines)):
        pass
    assert event_lists == [run.events for run in alone]


def test_10_prefill_starves_decode() -> None:
    run = scenarios.PREFILL_STARVES_DECODE.run()
    assert run.steps_with_token(0) == [0, 4, 5, 6]
    assert [step.phase for step in run.steps[:5]] == ["prefill"] * 4 + ["decode"]


def test_11_budget_wasted_behind_the_head() -> None:
    run = scenarios.BUDGET_BEHIND_THE_HEAD.run()
    assert [step.num_tokens for step in run.steps] == [6, 7, 2]
    assert [step.held for step in run.steps] == [[(1, "chunk_not_first")], [(2, "chunk_not_first")], []]
