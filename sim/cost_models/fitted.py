"""The time of a step as a sum of a few terms, whose coefficients were fitted to measured steps.

Decode, prefill and mixed steps have coefficients of their own: a mixed step is not the sum of a decode and a prefill
step, since it reads the weights once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import msgspec

from nanovllm.engine.batch import ScheduledBatch
from sim.cost_models.misfit import Misfit
from sim.cost_models.shape import StepShape
from sim.cost_models.step_time import StepTime

TOKEN_KNOTS = (
    *(0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
    *(1024, 1536, 2048, 3072, 4096, 6144, 8192),
)
"""Between two of these numbers of tokens, each token of a step costs the same."""
CONTEXT_KNOTS = (0, 512, 1536)
"""The same for the tokens that the longest sequence attends to."""

MAX_COEFFICIENT_S = 1e6
"""Above, sums of times would leave what a float can hold."""


class Coefficients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds on the device, for one kind of step.

    Attention takes what all its work takes, or what its longest sequence takes alone, whichever is more: few sequences
    leave most of the device idle.
    """

    step_s: float
    """Each step: reading the weights, launching."""
    token_s: tuple[float, ...]
    """Each token between two of ``TOKEN_KNOTS``, and each beyond the last."""
    sequence_s: float
    """Each sequence: its head and its draw."""
    kv_token_s: float
    """Work of attention: each token whose KV a decode reads."""
    shared_kv_token_s: float
    """Each token that a decode attends to, but that another one has read."""
    chunk_pair_s: float
    """Each pair of a chunk's token and one that it sees, see ``StepShape.tile_pairs``."""
    context_s: tuple[float, ...]
    """The longest sequence: each token that it attends to between two of ``CONTEXT_KNOTS``, and beyond the last."""

    def __post_init__(self) -> None:
        for name, knots in (("token_s", TOKEN_KNOTS), ("context_s", CONTEXT_KNOTS)):
            if len(getattr(self, name)) != len(knots):
                raise ValueError(f"{name} has {len(getattr(self, name))} values, {len(knots)} are needed")
        for value in msgspec.structs.astuple(self):
            _check(value if isinstance(value, tuple) else (value,))

    def step_time(
        self,
        shape: StepShape,
        num_tokens: int,
        factor: float = 1.0,
        host_s: float = 0.0,
        is_extrapolated: bool = False,
    ) -> StepTime:
        """``factor`` times what the terms say of the device, and the program's ``host_s``;
        ``num_tokens``: with those that are computed in vain."""
        matmul_s = _sum_between(TOKEN_KNOTS, self.token_s, num_tokens) + shape.num_sequences * self.sequence_s
        read_s = (shape.decode_kv_tokens - shape.shared_kv_tokens) * self.kv_token_s
        kv_traffic_s = read_s + shape.shared_kv_tokens * self.shared_kv_token_s
        attention_s = shape.tile_pairs * self.chunk_pair_s
        alone_s = _sum_between(CONTEXT_KNOTS, self.context_s, shape.longest_context)
        if alone_s > kv_traffic_s + attention_s:
            attention_s = alone_s - kv_traffic_s
        return StepTime(
            factor * self.step_s,
            factor * matmul_s,
            factor * kv_traffic_s,
            factor * attention_s,
            host_s=host_s,
            is_extrapolated=is_extrapolated,
        )


class HostCoefficients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds of the program, for one kind of step: what the device waits for if it does not work ahead."""

    step_s: float
    sequence_s: float
    token_s: float

    def __post_init__(self) -> None:
        _check((self.step_s, self.sequence_s, self.token_s))

    def __add__(self, other: HostCoefficients) -> HostCoefficients:
        """Of two parts of the program, one after the other."""
        return HostCoefficients(
            step_s=self.step_s + other.step_s,
            sequence_s=self.sequence_s + other.sequence_s,
            token_s=self.token_s + other.token_s,
        )

    def of_step(self, shape: StepShape) -> float:
        """Seconds for a step."""
        return self.step_s + shape.num_sequences * self.sequence_s + shape.num_tokens * self.token_s


class RequestCoefficients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds that the engine takes to have a request in its queue; steps wait meanwhile."""

    request_s: float = 0.0
    token_s: float = 0.0
    """Each token of the prompt."""

    def __post_init__(self) -> None:
        _check((self.request_s, self.token_s))


def _check(coefficients_s: Iterable[float]) -> None:
    for value_s in coefficients_s:
        if not 0 <= value_s <= MAX_COEFFICIENT_S:
            sign = "negative" if value_s < 0 else f"{value_s}, no number from 0 to {MAX_COEFFICIENT_S:.0f}"
            raise ValueError(f"a coefficient is {sign}")


def between(knots: tuple[int, ...], number: int) -> list[float]:
    """How many of the first ``number`` lie between each two of ``knots``, and beyond the last."""
    inner = [float(min(max(number - low, 0), high - low)) for low, high in pairwise(knots)]
    return [*inner, float(max(0, number - knots[-1]))]


def _sum_between(knots: tuple[int, ...], values_s: tuple[float, ...], number: int) -> float:
    """``between``, each times its value, without what is beyond ``number``."""
    total_s = 0.0
    for place in range(bisect_left(knots, number)):
        low = knots[place]
        high = knots[place + 1] if place + 1 < len(knots) else number
        total_s += values_s[place] * ((high if high < number else number) - low)
    return total_s


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of tokens for which the backend has a CUDA graph, ascending: a step is computed by the next larger one,
    as if it had as many tokens. One that is larger than all is computed as it is."""

    decode: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    """Of prefill and mixed steps."""

    def __post_init__(self) -> None:
        for name in ("decode", "chunks"):
            sizes = getattr(self, name)
            if list(sizes) != sorted({size for size in sizes if size > 0}):
                raise ValueError(f"sizes.{name} must be positive and in ascending order")

    def padded(self, shape: StepShape) -> int:
        """How many tokens are computed for a step."""
        sizes = self.chunks if shape.chunk_tokens else self.decode
        place = bisect_left(sizes, shape.num_tokens)
        return sizes[place] if place < len(sizes) else shape.num_tokens


_NO_TIME = RequestCoefficients()
NO_SIZES = Sizes()


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Predicts by ``device`` and ``host``, both by kind of step: ``decode``, ``prefill``, ``mixed``."""

    device: dict[str, Coefficients]
    host: dict[str, HostCoefficients]
    request: RequestCoefficients = _NO_TIME
    sizes: Sizes = NO_SIZES
    misfit: Misfit | None = None
    """Of decode steps that share no blocks."""
    block_size: int | None = None
    """Of the KV pool, where leading blocks that several decodes share are read once; None where they are not. A
    simulation puts its own, see ``for_block_size``."""
    hardware: str | None = None
    """On which the steps were measured, see ``MeasuredCostModel``."""
    num_gpus: int = 1
    dtype: str | None = None
    lookahead: bool = False
    largest: Mapping[str, StepShape] = field(default_factory=dict)
    """By kind of step, the most of each sum that a measured step had; nothing is called extrapolated without it."""

    @property
    def measured(self) -> str:
        """See ``BoundedCostModel``."""
        return "; ".join(f"{kind} steps of up to {_in_words(shape)}" for kind, shape in self.largest.items())

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        """See ``CostModel``."""
        return self.time_of(StepShape.of(batch, self.block_size))

    def for_block_size(self, block_size: int) -> Fitted:
        """See ``PooledCostModel``."""
        return self if self.block_size is None else replace(self, block_size=block_size)

    def request_time_s(self, num_prompt_tokens: int) -> float:
        """See ``RequestCostModel``."""
        return self.request.request_s + num_prompt_tokens * self.request.token_s

    def time_of(self, shape: StepShape) -> StepTime:
        """The time of a step; without ``host``, on the device alone."""
        kind, factor = shape.kind, 1.0
        if self.misfit is not None and not shape.chunk_tokens and not shape.shared_kv_tokens:
            factor = self.misfit.factor(shape.num_sequences, shape.mean_decode)
        host_s = self.host[kind].of_step(shape) if self.host else 0.0
        largest = self.largest.get(kind)
        is_extrapolated = largest is not None and (  # towards fewer there is no limit: the terms end at nothing
            shape.num_tokens > largest.num_tokens
            or shape.longest_context > largest.longest_context
            or shape.decode_kv_tokens > largest.decode_kv_tokens
            or shape.num_sequences > largest.num_sequences
        )
        return self.device[kind].step_time(shape, self.sizes.padded(shape), factor, host_s, is_extrapolated)


def _in_words(largest: StepShape) -> str:
    words = f"{largest.num_sequences:,} sequences, contexts of {largest.longest_context:,} tokens"
    if largest.num_decodes:
        words += f", {largest.decode_kv_tokens:,} of all decodes"
    return f"{words}, {largest.num_tokens:,} new tokens" if largest.chunk_tokens else words
