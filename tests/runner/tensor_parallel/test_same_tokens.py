"""Several ranks answer as one does: each family, with chunks, shared prefixes, preemption, and all ways to draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from nanovllm.engine.engine import Engine
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.trace.events import AnyEvent, ChunkScheduled, Preempted, PrefixHit
from tests.runner.tensor_parallel.runs import CONFIG, answers, requests, running
from tests.runner.test_model_runner import SPEC
from tests.tiny_models import FAMILIES, greedy_tokens, make_model


@pytest.mark.parametrize("family", FAMILIES)
def test_two_ranks(family: str, tiny_model: Callable[[str], Path]) -> None:
    with running(1, model=tiny_model(family)) as alone:
        expected = answers(alone, requests())
    events: list[AnyEvent] = []
    with running(2, model=tiny_model(family)) as pair:
        assert answers(pair, requests(), events) == expected
        assert pair.num_kv_blocks == 25
    assert any(isinstance(event, Preempted) for event in events)
    assert any(isinstance(event, PrefixHit) for event in events)
    assert any(isinstance(event, ChunkScheduled) and event.remaining for event in events)
    work, reference = requests(), make_model(family)
    for index in (0, 2):
        assert expected[index] == greedy_tokens(reference, list(work[index].prompt_token_ids), 14)


@pytest.mark.parametrize(("family", "size"), [("llama", 3), ("qwen3", 6)])
def test_ranks_that_share_kv_heads(family: str, size: int, tiny_model: Callable[[str], Path]) -> None:
    """2 KV heads: with 3 ranks, the second reads both; with 6, three hold each."""
    with running(1, model=tiny_model(family)) as alone, running(size, model=tiny_model(family)) as group:
        assert answers(group, requests()) == answers(alone, requests())


def test_random_weights_are_those_of_one_rank() -> None:
    with running(1, spec=SPEC) as alone, running(2, spec=SPEC) as pair:
        assert answers(pair, requests()) == answers(alone, requests())


def test_half_precision() -> None:
    with running(2, spec=SPEC, dtype="bfloat16") as pair:
        assert pair.dtype == torch.bfloat16
        assert {len(tokens) for tokens in answers(pair, requests()).values()} == {14}


def test_two_engines_at_once() -> None:
    with running(1, spec=SPEC) as alone:
        expected = answers(alone, requests())
    with running(2, spec=SPEC) as first, running(2, spec=SPEC) as second:
        engines = [Engine(runner.config, runner) for runner in (first, second)]
        tokens: list[dict[object, list[int]]] = [{}, {}]
        for results in zip(*(engine.run(requests()) for engine in engines), strict=True):
            for result, told in zip(results, tokens, strict=True):
                told |= {seq.request_id: seq.completion_token_ids for seq in result.finished}
        assert tokens == [expected, expected]


def test_the_pool_is_one_that_all_have_memory_for() -> None:
    with (
        running(2, spec=SPEC, num_kvcache_blocks=-1, kvcache_block_size=256) as pair,
        running(1, spec=SPEC, num_kvcache_blocks=-1, kvcache_block_size=256) as alone,
    ):
        assert pair.num_kv_blocks == 2 * alone.num_kv_blocks  # each rank has half of the KV heads


@pytest.fixture(scope="module")
def pair() -> ModelRunner:
    with running(2, spec=SPEC) as runner:
        yield runner


@settings(max_examples=12)
@given(aborts=st.dictionaries(st.integers(0, 25), st.integers(0, 5), max_size=4))
def test_aborts_do_not_disturb_the_others(pair: ModelRunner, aborts: dict[int, int]) -> None:
    expected = answers(pair, requests())
    engine = Engine(CONFIG, pair)
    for result in engine.run(requests()):
        for seq in result.finished:
            assert seq.completion_token_ids == expected[seq.request_id]
        if result.step in aborts:
            engine.abort(aborts[result.step])
