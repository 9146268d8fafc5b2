"""Steps by flash-attn against the plain ones, by a fake of it on a CPU: the same tokens, with empty rows too, as graphs
compute them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests import flash_attn_fake
from tests.kernels import INTERPRETED, torch
from tests.runner.row_runs import CONFIG, SPEC, MakeSteps, run

from nanovllm.attention.torch_attention import TorchAttention  # isort: skip  (after the check that Triton is there)
from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.eager_steps import EagerSteps
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.steps import Steps

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="the fake computes on a CPU; tests/gpu has the real one")
ROOMY = replace(CONFIG, kvcache_block_size=256, max_model_len=512)


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(ROOMY, spec=SPEC)


@pytest.fixture(scope="module", autouse=True)
def _fake() -> Iterator[None]:
    with flash_attn_fake.installed():
        yield


def flash_steps(num_empty_rows: int, pools: list[torch.Tensor] | None = None) -> MakeSteps:
    """``FlashSteps`` that compute so many rows more than there are sequences; their pools are put into ``pools``."""
    from nanovllm.runner.flash_steps import FlashSteps

    def make(config: Config, spec: ModelSpec, model: Decoder, pool: torch.Tensor) -> Steps:
        pool.fill_(float("nan"))
        if pools is not None:
            pools.append(pool)
        steps = FlashSteps(config, spec, model, pool)
        steps._decode = lambda num_rows, shares: steps._decode_rows(
            min(num_rows + num_empty_rows, config.max_num_seqs), shares
        )[:num_rows]
        return steps

    return make


@pytest.mark.parametrize(
    "config",
    [replace(ROOMY, lookahead=False), replace(ROOMY, num_kvcache_blocks=2), ROOMY],
    ids=["", "tight, looking ahead", "looking ahead"],
)
@pytest.mark.parametrize("num_empty_rows", [0, 3])
def test_tokens_are_those_of_the_plain_steps(runner: ModelRunner, config: Config, num_empty_rows: int) -> None:
    expected = run(runner, replace(ROOMY, lookahead=False), None)
    assert run(runner, config, flash_steps(num_empty_rows)) == expected


def test_empty_rows_write_nothing_of_their_own(runner: ModelRunner) -> None:
    pools: list[torch.Tensor] = []
    for num_empty_rows in (0, 1, 4):
        run(runner, ROOMY, flash_steps(num_empty_rows, pools))
        torch.testing.assert_close(pools[-1], pools[0], equal_nan=True)


@pytest.mark.parametrize("name", ["flash", "torch"])
def test_without_graphs_the_plain_steps_take_it(runner: ModelRunner, name: str) -> None:
    from nanovllm.attention.flash_attention import FlashAttention

    attention = {"flash": FlashAttention, "torch": TorchAttention}[name]

    def make(config: Config, spec: ModelSpec, model: Decoder, pool: torch.Tensor) -> Steps:
        return EagerSteps(config, spec, model, attention(pool), pool.device)

    expected = run(runner, replace(ROOMY, lookahead=False), None)
    assert run(runner, ROOMY, make) == expected
