"""The fused path against the plain one: the same tokens, whatever is chunked, shared, preempted or looked ahead of.

Without a card the kernels run in Triton's interpreter, and steps are not recorded as graphs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.runner.decode_graphs import graph_sizes
from tests.kernels import INTERPRETED
from tests.runner.row_runs import CONFIG, SPEC, drawn_request, installed, run

from nanovllm.runner.fused_steps import FusedSteps  # isort: skip  (after the check that Triton is there)
from nanovllm.runner.model_runner import ModelRunner


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(CONFIG, spec=SPEC)


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, lookahead=False),
        replace(CONFIG, num_kvcache_blocks=7),
        replace(CONFIG, policy="mixed", max_num_batched_tokens=24, num_kvcache_blocks=7, admit_by="chunk"),
    ],
    ids=["roomy", "tight, looking ahead", "mixed steps, tight, looking ahead"],
)
def test_tokens_are_those_of_the_plain_steps(runner: ModelRunner, config: Config) -> None:
    expected = run(runner, replace(CONFIG, lookahead=False), None)
    assert run(runner, config, FusedSteps) == expected
    if not INTERPRETED:
        assert run(runner, replace(config, enforce_eager=False), FusedSteps) == expected


def test_rows_follow_what_a_mixed_step_computed(runner: ModelRunner) -> None:
    """The same sequences decode before and after steps with a chunk, too, of a prompt that is given up."""
    config = replace(CONFIG, policy="mixed", max_num_batched_tokens=8, enforce_eager=INTERPRETED)
    tokens = []
    for make_steps, has_company in ((None, False), (FusedSteps, True)):
        with installed(runner, config, make_steps):
            engine = Engine(config, runner)
            decoding = engine.add(drawn_request("decoding", range(5), max_tokens=7))
            engine.step()
            engine.step()
            if has_company:
                engine.add(drawn_request("given up", range(100, 130), max_tokens=1))
                assert "mixed" in {engine.step().batch.phase for _ in range(2)}
                engine.abort("given up")
            for _ in engine.run():
                pass
            tokens.append(decoding.completion_token_ids)
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("max_rows", [1, 7, 12, 100, 256, 300, 512])
def test_graph_sizes_leave_no_gap(max_rows: int) -> None:
    sizes = graph_sizes(max_rows)
    assert sizes[-1] == max_rows
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert all(after - before <= max(1, before) for before, after in pairwise(sizes))
