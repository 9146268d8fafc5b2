"""Runs of the engine on a card, and what their tokens and logits are held against."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence as Tokens
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent
from tests.gpu.models import VOCAB_SIZE, Reference

ROUNDING_MARGIN = 3.0
"""A run whose logits err by at most ``e`` takes a token whose exact logit is at most ``2 e`` below the largest. ``e``
is known from transformers, which computes in the same type; half as much again is left to sums in another order."""
FLOAT32_TOLERANCE = 1e-4
"""Of the largest logit. Float32 itself accounts for some 1e-6, an ulp in the frequency of a rotary embedding for 1e-5
at position 300; a slot too many, or one that is stale, for 1e-3."""

Logits = dict[tuple[int, int], Tensor]
"""By request and number of tokens that they follow: ``[vocab_size]`` float64."""


def draw_tokens(rng: random.Random, count: int) -> list[int]:
    """A prompt for one of ``tests.gpu.models``."""
    return [rng.randrange(VOCAB_SIZE) for _ in range(count)]


@dataclass(frozen=True)
class Run:
    """What came out, by request in the order of the prompts."""

    tokens: list[list[int]]
    events: list[AnyEvent]
    logits: Logits = field(repr=False)

    def has(self, kind: type[AnyEvent]) -> bool:
        """Whether something of this kind happened."""
        return any(isinstance(event, kind) for event in self.events)


def run(
    runner: ModelRunner,
    config: Config,
    prompts: Tokens[list[int]],
    num_tokens: int | Tokens[int],
    *,
    arrival_steps: Tokens[int] | None = None,
    watch: bool = False,
    **params: Any,
) -> Run:
    """Greedy answers. ``watch``: note all logits, too; the logits of a graph are read before its next step."""
    counts = [num_tokens] * len(prompts) if isinstance(num_tokens, int) else num_tokens
    steps = arrival_steps or [0] * len(prompts)
    requests = [
        Request(
            request_id=index,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=count, ignore_eos=True, **{"temperature": 0.0, **params}),
            arrival_step=step,
        )
        for index, (prompt, count, step) in enumerate(zip(prompts, counts, steps, strict=True))
    ]
    events: list[AnyEvent] = []
    logits: Logits = {}
    if watch:
        _watch_logits(runner, logits)
    engine = Engine(config, runner, emit=events.append)
    finished: dict[object, Sequence] = {}
    for result in engine.run(requests):
        assert result.error is None, result.error
        finished |= {seq.request_id: seq for seq in result.finished}
    assert not engine.rejected, engine.rejected
    sequences = [finished[index] for index in range(len(prompts))]
    return Run([seq.completion_token_ids for seq in sequences], events, logits)


def run_once(config: Config, prompts: Tokens[list[int]], num_tokens: int | Tokens[int], **options: Any) -> Run:
    """``run`` with a runner of its own."""
    runner = ModelRunner(config)
    try:
        return run(runner, config, prompts, num_tokens, **options)
    finally:
        runner.close()


def _watch_logits(runner: ModelRunner, seen: Logits) -> None:
    """Let the runner's steps note the logits of each sequence's last token in ``seen``."""
    steps: Any = runner._steps
    newest: list[Tensor] = []

    def keep(
        compute: Callable[..., Tensor], logits_of: Callable[[Tensor], Tensor] | None = None
    ) -> Callable[..., Tensor]:
        def keeping(*args: Any) -> Tensor:
            output = compute(*args)
            newest[:] = [output if logits_of is None else logits_of(output)]
            return output

        return keeping

    if steps.takes_unknown_tokens:  # these return hidden states
        steps._decode = keep(steps._decode, steps._compute_logits)
        steps._compute_prompts = keep(steps._compute_prompts, steps._compute_logits)
    else:
        model: Any = runner._model
        model.compute_logits = keep(model.compute_logits)
    compute = steps.compute

    def computing(sequences: list[Sequence]) -> Tensor:
        places = [(seq.request_id, seq.num_cached_tokens + seq.num_scheduled_tokens) for seq in sequences]
        tokens: Tensor = compute(sequences)
        seen.update(zip(places, newest[0][: len(sequences)].double(), strict=True))
        return tokens

    steps.compute = computing


# ---- what they are held against ------------------------------------------------------------------------------


def assert_logits(reference: Reference, prompts: Tokens[list[int]], got: Run) -> None:
    """All logits of a float32 run are those of transformers."""
    assert got.logits, "none was noted"
    for index, (prompt, answer) in enumerate(zip(prompts, got.tokens, strict=True)):
        places = [place for request, place in got.logits if request == index]
        assert set(range(len(prompt), len(prompt) + len(answer))) <= set(places)
        exact = reference.exact_logits([*prompt, *answer])
        actual = torch.stack([got.logits[index, place] for place in places])
        expected = exact[torch.tensor(places) - 1]
        assert actual.isfinite().all()
        error = ((actual - expected).abs().amax(1) / exact.abs().max()).tolist()
        worst = max(range(len(places)), key=error.__getitem__)
        told = f"request {index}, after {places[worst]} tokens ({len(prompt)} of the prompt)"
        assert error[worst] <= FLOAT32_TOLERANCE, f"{told}: off by {error[worst]:.1e} of the largest logit"


def assert_greedy_up_to_near_ties(reference: Reference, prompts: Tokens[list[int]], got: Tokens[list[int]]) -> None:
    """Each token is the most likely one after those before it, or nearer to it than rounding can tell. That holds
    beyond the first such tie, too, where two runs go on differently."""
    for index, (prompt, answer) in enumerate(zip(prompts, got, strict=True)):
        token_ids = [*prompt, *answer[:-1]]
        rows = slice(len(prompt) - 1, None)
        exact = reference.exact_logits(token_ids)[rows]
        error = (reference.rounded_logits(token_ids)[rows] - exact).abs().max().item()
        chosen = exact.gather(1, torch.tensor(answer, device=exact.device)[:, None])[:, 0]
        gaps = (exact.amax(1) - chosen).tolist()
        for place, gap in enumerate(gaps):
            assert gap <= ROUNDING_MARGIN * error, (
                f"request {index} ({len(prompt)} tokens), answer's token {place}: {gap:.2e} below the best, "
                f"while rounding makes {error:.2e}"
            )


def assert_same_up_to_near_ties(
    reference: Reference, prompts: Tokens[list[int]], got: Tokens[list[int]], other: Tokens[list[int]]
) -> None:
    """Where two runs part, both tokens are nearer to the best than rounding can tell."""
    parted = [index for index, (a, b) in enumerate(zip(got, other, strict=True)) if a != b]
    for answers in (got, other):
        assert_greedy_up_to_near_ties(reference, [prompts[i] for i in parted], [answers[i] for i in parted])
