"""The time of a step as a sum of a few terms, whose coefficients were fitted to measured steps.

Decode, prefill and mixed steps have coefficients of their own: a mixed step is not the sum of a decode and a prefill
step, since it reads the weights once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from nanovllm.engine.batch import ScheduledBatch
from sim.cost_models.shape import StepShape
from sim.cost_models.step_time import StepTime

TOKEN_KNOTS = (0, 16, 64, 128, 256, 512, 1024)
"""Between two of these numbers of tokens, each token of a step costs the same."""


MAX_COEFFICIENT_S = 1e6
"""Above, sums of times would leave what a float can hold."""


class Coefficients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds on the device, for one kind of step."""

    step_s: float
    """Each step: reading the weights, launching."""
    token_s: tuple[float, ...]
    """Each token between two of ``TOKEN_KNOTS``, and each beyond the last."""
    sequence_s: float
    """Each sequence: its head and its draw. (Of a decode step, which has as many tokens, the tokens tell it.)"""
    kv_token_s: float
    """Each token whose KV is read, see ``StepShape.num_read_tokens``."""
    shared_kv_token_s: float
    """Each token that a decode attends to, but that another one has read."""
    chunk_pair_s: float
    """Each pair of a chunk's token and one that it sees, see ``StepShape.chunk_pairs``."""

    def __post_init__(self) -> None:
        if len(self.token_s) != len(TOKEN_KNOTS):
            raise ValueError(f"token_s has {len(self.token_s)} values, {len(TOKEN_KNOTS)} are needed")
        _check(features_of(self))

    def step_time(self, shape: StepShape) -> StepTime:
        """The time on the device."""
        tokens_s = sum(a * b for a, b in zip(token_features(shape.num_tokens), self.token_s, strict=True))
        return StepTime(
            weights_s=self.step_s,
            matmul_s=tokens_s + shape.num_sequences * self.sequence_s,
            kv_traffic_s=shape.num_read_tokens * self.kv_token_s + shape.shared_kv_tokens * self.shared_kv_token_s,
            attention_s=shape.chunk_pairs * self.chunk_pair_s,
        )


class HostCoefficients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds of the program, for one kind of step: what the device waits for if it does not work ahead."""

    step_s: float
    sequence_s: float
    token_s: float

    def __post_init__(self) -> None:
        _check((self.step_s, self.sequence_s, self.token_s))

    def of_step(self, shape: StepShape) -> float:
        """Seconds for a step."""
        return self.step_s + shape.num_sequences * self.sequence_s + shape.num_tokens * self.token_s


def _check(coefficients_s: Iterable[float]) -> None:
    for value_s in coefficients_s:
        if not 0 <= value_s <= MAX_COEFFICIENT_S:
            sign = "negative" if value_s < 0 else f"{value_s}, no number from 0 to {MAX_COEFFICIENT_S:.0f}"
            raise ValueError(f"a coefficient is {sign}")


def token_features(num_tokens: int) -> list[float]:
    """How many of the tokens lie between each two of ``TOKEN_KNOTS``, and beyond the last."""
    inner = [float(min(max(num_tokens - low, 0), high - low)) for low, high in pairwise(TOKEN_KNOTS)]
    return [*inner, float(max(0, num_tokens - TOKEN_KNOTS[-1]))]


def features_of(coefficients: Coefficients) -> tuple[float, ...]:
    """All coefficients in one row, in the order of the fields."""
    return tuple(
        number
        for value in msgspec.structs.astuple(coefficients)
        for number in (value if isinstance(value, tuple) else (value,))
    )


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Predicts by ``device`` and ``host``, both by kind of step: ``decode``, ``prefill``, ``mixed``."""

    device: dict[str, Coefficients]
    host: dict[str, HostCoefficients]
    block_size: int | None = None
    """Of the KV pool, where leading blocks that several decodes share are read once; None where they are not."""

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        """See ``CostModel``."""
        shape = StepShape.of(batch, self.block_size)
        return msgspec.structs.replace(
            self.device[shape.kind].step_time(shape), host_s=self.host[shape.kind].of_step(shape)
        )
