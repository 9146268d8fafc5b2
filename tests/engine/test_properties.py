"""Laws of whole runs: scheduling never changes the output, nobody starves, no token is computed for nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, note, settings, strategies as st

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.trace.events import ChunkScheduled, DecodeScheduled, Preempted, PrefixHit, RequestFinished, RequestId
from nanovllm.trace.replay import Replay
from tests.engine.runs import Run, run_to_end
from tests.engine.scenarios import Scenario, own_tokens, shared_tokens
from tests.engine.test_block_manager_machine import HASH_FUNCTIONS
from tests.fakes import DeferredHashBackend, HashBackend, expected_completion
from tests.strategies import VOCAB_SIZE, configs, workloads


@st.composite
def cases(draw: st.DrawFn, **options: object) -> tuple[Config, list[Request]]:
    """An engine and a workload that presses it."""
    requests = draw(workloads())
    return draw(configs(requests, **options)), requests


def run(config: Config, requests: list[Request], **options: object) -> Run:
    result = run_to_end(config, requests, vocab_size=VOCAB_SIZE, **options)
    note(f"{len(result.steps)} steps, preemptions {result.preemptions}, hits {result.hit_tokens}")
    return result


def end_token_ids(config: Config, request: Request) -> set[int]:
    params = request.sampling_params
    return {*params.stop_token_ids, *(() if params.ignore_eos else config.eos_token_ids)}


def num_blocks_needed(config: Config, request: Request) -> int:
    num_tokens = len(request.prompt_token_ids) + request.sampling_params.max_tokens - 1
    return -(-num_tokens // config.kvcache_block_size)


@settings(max_examples=400)
@given(case=cases(), hash_name=st.sampled_from(["xxh64", "xxh64", "one bit", "constant"]))
def test_outputs_do_not_depend_on_scheduling(case: tuple[Config, list[Request]], hash_name: str) -> None:
    config, requests = case
    result = run(config, requests, hash_function=HASH_FUNCTIONS[hash_name])
    fitting = [r for r in requests if num_blocks_needed(config, r) <= config.num_kvcache_blocks]
    assert result.completions == {
        request.request_id: expected_completion(
            request.prompt_token_ids,
            request.sampling_params.max_tokens,
            vocab_size=VOCAB_SIZE,
            end_token_ids=end_token_ids(config, request),
        )
        for request in fitting
    }
    assert set(result.finish_reasons) == {request.request_id for request in fitting}
    assert set(result.rejections) == {request.request_id for request in requests if request not in fitting}
    assert result.num_free_blocks == config.num_kvcache_blocks


@given(case=cases())
def test_the_same_inputs_give_the_same_trace_byte_for_byte(case: tuple[Config, list[Request]]) -> None:
    one, two = run(*case), run(*case)
    assert one.events == two.events
    encode = msgspec.json.Encoder().encode_lines
    assert encode(one.events) == encode(two.events)


@given(case=cases())
def test_listening_changes_no_decision(case: tuple[Config, list[Request]]) -> None:
    config, requests = case
    loud = run(config, requests)
    backend = DeferredHashBackend(config.num_kvcache_blocks, config.kvcache_block_size, vocab_size=VOCAB_SIZE)
    silent = Engine(config, backend, clock=VirtualClock())
    for _ in silent.run(requests):
        pass
    assert isinstance(loud.engine.backend, HashBackend)
    assert backend.calls == loud.engine.backend.calls


@given(case=cases())
def test_every_request_ends_within_a_bound(case: tuple[Config, list[Request]]) -> None:
    """Every step computes something, and every admission yields a token. So a token costs at most the steps that
    it takes to prefill all before it, by chunks as large as they may be: a smaller one is the last, or beside tokens
    that others get."""
    config, requests = case
    cap = config.max_prefill_tokens_per_request
    chunk = config.max_num_batched_tokens if cap == -1 else min(cap, config.max_num_batched_tokens)
    bound = sum(
        -(-(len(request.prompt_token_ids) + num_generated) // chunk)
        for request in requests
        for num_generated in range(request.sampling_params.max_tokens)
    )
    result = run(config, requests, max_steps=bound)
    assert all(step.num_tokens > 0 for step in result.steps)


@given(case=cases())
def test_every_computed_token_is_accounted_for(case: tuple[Config, list[Request]]) -> None:
    """Computed + found in the cache = in the cache at the end + what preemptions threw away + what was being computed
    when a token before it turned out to end the request. In the cache at the end is all but the last token, unless
    such a one was preempted meanwhile."""
    gained: Counter[RequestId] = Counter()
    lost: Counter[RequestId] = Counter()
    replay = Replay()
    for event in run(*case).events:
        if isinstance(event, RequestFinished):
            state = replay.requests[event.request]
            assert gained[event.request] == (state.num_cached_tokens + lost[event.request] + state.num_scheduled_tokens)
            is_late = event.reason != "length" and case[0].lookahead
            assert state.num_cached_tokens == state.num_tokens - 1 or (is_late and state.status == "waiting")
            assert state.num_scheduled_tokens <= is_late
        elif isinstance(event, (ChunkScheduled, PrefixHit)):
            gained[event.request] += event.tokens
        elif isinstance(event, DecodeScheduled):
            gained.update(event.requests)
        elif isinstance(event, Preempted):
            lost[event.request] += event.tokens_lost
        replay.apply(event)


@given(case=cases(enable_prefix_caching=True, lookahead=False))
def test_caching_saves_tokens_where_nobody_is_preempted(case: tuple[Config, list[Request]]) -> None:
    config, requests = case
    cached = run(config, requests)
    uncached = run(replace(config, enable_prefix_caching=False), requests)
    assert uncached.hit_tokens == []
    if not cached.preemptions:
        saved = sum(tokens for _, tokens in cached.hit_tokens)
        assert cached.num_computed_tokens + saved <= uncached.num_computed_tokens


CACHING_COSTS_TOKENS = Scenario(
    0,
    "A hit lets a request in early, only to be preempted",
    "",
    ((shared_tokens(2), 5, 0), (shared_tokens(2) + own_tokens(1, 4), 2, 2)),
    block_size=1,
    num_blocks=7,
)


@pytest.mark.parametrize(("caching", "num_tokens", "num_preemptions"), [(True, 14, 1), (False, 13, 0)])
def test_caching_may_cost_tokens_under_pressure(caching: bool, num_tokens: int, num_preemptions: int) -> None:
    result = CACHING_COSTS_TOKENS.run(enable_prefix_caching=caching)
    assert (result.num_computed_tokens, len(result.preemptions)) == (num_tokens, num_preemptions)


CACHING_COSTS_A_STEP = Scenario(
    0,
    "A hit lets a request in early, into a prefill step of its own",
    "",
    ((shared_tokens(6), 2, 0), (shared_tokens(6) + own_tokens(1, 3), 1, 1), (3, 1, 2), (5, 1, 3)),
    block_size=2,
    num_blocks=7,
)


@pytest.mark.parametrize(("caching", "num_steps"), [(True, 5), (False, 4)])
def test_caching_may_cost_a_step_without_preemption(caching: bool, num_steps: int) -> None:
    result = CACHING_COSTS_A_STEP.run(enable_prefix_caching=caching)
    assert (len(result.steps), result.preemptions) == (num_steps, [])
