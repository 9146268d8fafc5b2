"""Which steps are measured: a grid over what the time of a step depends on, as far as the backend has room."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from nanovllm.config import Config

NUM_WARM_UPS = 2
"""The first repetitions, which count for nothing: kernels are compiled, rows are set up."""
NUM_ALONE = NUM_WARM_UPS + 3
"""Each planned step is computed so often with nothing else under way."""
NUM_AHEAD = NUM_WARM_UPS + 5
"""And so often with the next one waiting for its end."""
NUM_REPETITIONS = NUM_ALONE + NUM_AHEAD
"""In each of them, decodes grow by a token."""

_BATCHES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512)
_CONTEXTS = (64, 256, 512, 768, 1024, 1500, 2200, 3000, 4000)
_CHUNKS = (8, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1500, 2048, 3000, 4096, 6000, 8192, 12000, 16384)


class PlannedStep(NamedTuple):
    """A step to measure."""

    decodes: tuple[int, ...] = ()
    """For each decode, the tokens that are cached before it."""
    chunks: tuple[tuple[int, int], ...] = ()
    """For each chunk, the tokens that are cached before it and those that it computes."""
    num_shared_tokens: int = 0
    """Tokens at the beginning that all decodes have in common."""

    @property
    def kind(self) -> str:
        """As ``StepShape.kind`` has it."""
        return "decode" if not self.chunks else "mixed" if self.decodes else "prefill"

    def num_blocks(self, block_size: int) -> int:
        """Blocks of the pool that it takes, with those into which its decodes grow."""
        num_shared = self.num_shared_tokens // block_size
        decodes = [num_cached + 1 + NUM_REPETITIONS - num_shared * block_size for num_cached in self.decodes]
        chunks = [num_cached + num_tokens for num_cached, num_tokens in self.chunks]
        return num_shared + sum(-(-num_tokens // block_size) for num_tokens in (*decodes, *chunks))

    def fits(self, config: Config) -> bool:
        """Whether a backend with these options, all of them chosen, can compute it."""
        num_sequences = len(self.decodes) + len(self.chunks)
        longest = max([*self.decodes, *(cached + tokens for cached, tokens in self.chunks)], default=0)
        num_tokens = len(self.decodes) + sum(tokens for _, tokens in self.chunks)
        is_one_step = num_tokens <= config.max_num_batched_tokens or not self.chunks
        is_short = longest + 1 + NUM_REPETITIONS <= config.max_model_len
        fits_pool = self.num_blocks(config.kvcache_block_size) <= config.num_kvcache_blocks
        return 0 < num_sequences <= config.max_num_seqs and is_one_step and is_short and fits_pool


def plan_steps(config: Config, *, reads_shared_blocks_once: bool) -> list[PlannedStep]:
    """The grid, without what does not fit, each step once."""
    steps = [*_decodes(), *_prefills(), *_mixed()]
    if reads_shared_blocks_once:
        steps += _shared(config.kvcache_block_size)
    return [step for step in dict.fromkeys(steps) if step.fits(config)]


def _decodes() -> Iterator[PlannedStep]:
    for batch, context in product(_BATCHES, _CONTEXTS):
        yield PlannedStep((context,) * batch)
        if batch > 1:  # lengths from a quarter of it to seven quarters, as a served batch has them
            spread = (context * (1 + 6 * place / (batch - 1)) / 4 for place in range(batch))
            yield PlannedStep(tuple(map(int, spread)))


def _shared(block_size: int) -> Iterator[PlannedStep]:
    for batch, num_tokens, own in product((8, 32, 64, 128, 256), (1024, 2048, 4096), (32, 300)):
        num_shared = num_tokens // block_size * block_size
        if num_shared:
            yield PlannedStep((num_shared + own,) * batch, (), num_shared)


def _prefills() -> Iterator[PlannedStep]:
    for chunk, prefix in product(_CHUNKS, (0, 1000, 3000)):
        yield PlannedStep((), ((prefix, chunk),))
    for count, chunk in product((2, 4, 8, 16, 32, 64, 128), (16, 64, 128, 256, 512, 1024)):
        yield PlannedStep((), ((0, chunk),) * count)
        yield PlannedStep((), ((2048, chunk),) * count)


def _mixed() -> Iterator[PlannedStep]:
    totals = (16, 64, 128, 256, 512, 1024, 2048, 6000, 16000)
    for batch, context, total in product((1, 4, 8, 16, 48, 128, 254), (200, 1500), totals):
        for count in (1, 4, 24):
            if total >= 16 * count:
                yield PlannedStep((context,) * batch, ((0, total // count),) * count)
        yield PlannedStep((context,) * batch, ((200, total // 2), (0, total - total // 2)))
