"""Memory that runs out in a step, at any place in it: that step's requests fail, their blocks come back, and all others
are answered as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests import flash_attn_fake
from tests.kernels import INTERPRETED, torch
from tests.runner.row_runs import CONFIG, SPEC, MakeSteps, install

from nanovllm.config import Config  # isort: skip  (after the check that Triton is there)
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.errors import StepError
from nanovllm.models.decoder import Decoder
from nanovllm.models.fused_decoder import FusedDecoder
from nanovllm.runner import eager_steps, row_steps
from nanovllm.runner.decode_rows import DecodeRows
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.check import check
from tests.engine.invariants import check_scheduler

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="a fake of flash-attn computes on a CPU")
FLASH = replace(CONFIG, kvcache_block_size=256, max_model_len=512, num_kvcache_blocks=6)
PLAIN = replace(CONFIG, num_kvcache_blocks=9, lookahead=False)
PLACES: list[tuple[object, str]] = [
    (DecodeRows, "update"),
    (Decoder, "forward"),
    (Decoder, "compute_logits"),
    (row_steps, "draw"),
    (row_steps, "sample"),
    (eager_steps, "sample"),
]
"""Where memory may run out, before and after the work is done."""


def requests() -> list[Request]:
    """They come over time and share the first tokens; greedy, drawn and filtered ones."""
    draws = [{"temperature": 0.0}, {"temperature": 0.8}, {"temperature": 0.9, "top_k": 20}]
    return [
        Request(
            request_id=index,
            prompt_token_ids=[*range(1, 20 + 5 * (index % 4)), index],
            sampling_params=SamplingParams(max_tokens=3 + index % 5, ignore_eos=True, **draws[index % 3]),
            arrival_step=2 * index,
        )
        for index in range(8)
    ]


class Shortage:
    """Lets memory run out in the calls with these numbers, counted over all places; odd ones after their work."""

    def __init__(self, calls: set[int]) -> None:
        self.calls = calls
        self.num_calls = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            call, self.num_calls = self.num_calls, self.num_calls + 1
            if call in self.calls and call % 2 == 0:
                raise torch.OutOfMemoryError(f"CUDA out of memory in call {call}.\nDetails")
            result = function(*args, **options)
            if call in self.calls:
                raise torch.OutOfMemoryError(f"CUDA out of memory after call {call}.\nDetails")
            return result

        return wrapped


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(CONFIG, spec=SPEC)


@pytest.fixture(scope="module")
def flash_steps() -> Iterator[MakeSteps]:
    with flash_attn_fake.installed():
        from nanovllm.runner.flash_steps import FlashSteps

        yield FlashSteps


def answers(
    runner: ModelRunner,
    config: Config,
    make_steps: MakeSteps | None,
    calls: set[int],
    places: list[tuple[object, str]] = PLACES,
) -> tuple[dict[object, list[int]], set[object]]:
    """What each request is answered, and which of them failed."""
    runner.num_kv_blocks = config.num_kvcache_blocks
    install(runner, config, make_steps)
    events: list[Any] = []
    shortage, failed = Shortage(calls), set()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in places:
                patch.setattr(owner, name, shortage.around(getattr(owner, name)))
            engine = Engine(config, runner, emit=events.append)
            tokens: dict[object, list[int]] = {}
            for result in engine.run(requests()):
                tokens |= {seq.request_id: seq.completion_token_ids for seq in result.finished}
                if result.error is not None:
                    assert isinstance(result.error, StepError)
                    assert "ran out of memory on cpu" in str(result.error)
                    assert {seq.finish_reason for seq in result.finished} <= {"error"}
                    failed |= {seq.request_id for seq in result.finished}
    finally:
        vars(runner).pop("submit", None)
    check_scheduler(engine.scheduler)
    assert engine.scheduler.block_manager.num_free_blocks == config.num_kvcache_blocks
    assert check(events) == []
    return tokens, failed


@pytest.fixture(scope="module")
def expected(runner: ModelRunner) -> dict[object, list[int]]:
    tokens, failed = answers(runner, PLAIN, None, set())
    assert not failed
    return tokens


def check_answers(expected: dict[object, list[int]], tokens: dict[object, list[int]], failed: set[object]) -> None:
    assert tokens.keys() == expected.keys()
    for request_id, completion in expected.items():
        answer = tokens[request_id]
        assert answer == (completion[: len(answer)] if request_id in failed else completion)


shortages = st.sets(st.integers(0, 90), min_size=1, max_size=8)


@settings(max_examples=30)
@given(calls=shortages)
def test_plain_steps(runner: ModelRunner, expected: dict[object, list[int]], calls: set[int]) -> None:
    check_answers(expected, *answers(runner, PLAIN, None, calls))


@settings(max_examples=30)
@given(calls=shortages, lookahead=st.booleans(), max_num_batched_tokens=st.sampled_from([7, 40]))
def test_steps_over_rows(
    runner: ModelRunner,
    flash_steps: MakeSteps,
    expected: dict[object, list[int]],
    calls: set[int],
    lookahead: bool,
    max_num_batched_tokens: int,
) -> None:
    config = replace(FLASH, lookahead=lookahead, max_num_batched_tokens=max_num_batched_tokens)
    check_answers(expected, *answers(runner, config, flash_steps, calls))


def test_fused_steps(runner: ModelRunner, expected: dict[object, list[int]]) -> None:
    from nanovllm.runner.fused_steps import FusedSteps

    places = [(DecodeRows, "update"), (FusedDecoder, "_finish_layer"), (row_steps, "draw")]
    tokens, failed = answers(runner, replace(PLAIN, lookahead=True), FusedSteps, {9, 30, 47}, places)
    assert 0 < len(failed) < len(expected)
    check_answers(expected, tokens, failed)
