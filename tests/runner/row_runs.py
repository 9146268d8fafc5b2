"""Runs of a tiny model by steps of one's choice, with prompts chunked, shared, preempted and looked ahead of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.kv_cache import allocate_pool
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.steps import Steps
from nanovllm.sampling_params import SamplingParams
from tests.kernels import DEVICE, INTERPRETED, torch

SPEC = replace(
    ModelSpec.preset("qwen3-0.6b"),
    num_layers=2,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=96,
    vocab_size=307,
    max_position_embeddings=512,
    dtype="float32",
)
CONFIG = Config(
    device=DEVICE.type,
    dtype="float32",
    kvcache_block_size=16,
    num_kvcache_blocks=40,
    max_num_batched_tokens=40,
    max_model_len=128,
    max_num_seqs=5,
    enforce_eager=True,
    attention="torch",
)
MakeSteps = Callable[[Config, ModelSpec, Decoder, torch.Tensor], Steps]


def requests() -> list[Request]:
    """Prompts of which two share blocks; greedy, drawn and filtered ones; of different lengths."""
    prefix = list(range(1, 36))
    prompts = [[*prefix, 3], [7, 8, 9], [*prefix, 4, 5], [*range(50, 70)]]
    draws = [{"temperature": 0.0}, {"temperature": 0.8}, {"temperature": 0.9, "top_k": 20}, {"temperature": 0.0}]
    return [
        Request(
            request_id=index,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=4 + index, ignore_eos=True, **draw),
        )
        for index, (prompt, draw) in enumerate(zip(prompts, draws, strict=True))
    ]


def drawn_request(name: str, prompt: Iterable[int], max_tokens: int) -> Request:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.9, ignore_eos=True)
    return Request(request_id=name, prompt_token_ids=list(prompt), sampling_params=params)


class Arrived:
    """A step that is over when it has been submitted."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens.tolist()

    def result(self) -> list[int]:
        return self.tokens


def run(runner: ModelRunner, config: Config, make_steps: MakeSteps | None) -> list[list[int]]:
    """What ``requests`` are answered. ``make_steps``: None for those of the runner itself."""
    config = replace(config, enforce_eager=INTERPRETED or config.enforce_eager)
    with installed(runner, config, make_steps):
        engine = Engine(config, runner)
        sequences = [engine.add(request) for request in requests()]
        for result in engine.run():
            assert result.error is None
    return [seq.completion_token_ids for seq in sequences]


@contextmanager
def installed(runner: ModelRunner, config: Config, make_steps: MakeSteps | None) -> Iterator[None]:
    """While it lasts, the runner computes by these steps."""
    runner.num_kv_blocks = config.num_kvcache_blocks
    install(runner, config, make_steps)
    try:
        yield
    finally:
        vars(runner).pop("submit", None)


def install(runner: ModelRunner, config: Config, make_steps: MakeSteps | None) -> None:
    """Let the runner compute over a new pool by these steps, ahead of time if they can be."""
    num_blocks, block_size = config.num_kvcache_blocks, config.kvcache_block_size
    if make_steps is None:
        runner._steps = runner._new_steps(num_blocks, config)
        return
    assert runner._model is not None
    pool = allocate_pool(SPEC, num_blocks, block_size, runner.dtype, runner.device)
    runner._steps = make_steps(config, SPEC, runner._model, pool)
    runner._steps.record_graphs()
    if config.lookahead is not False and runner._steps.takes_unknown_tokens:
        runner.submit = lambda batch: Arrived(runner._compute(batch))
