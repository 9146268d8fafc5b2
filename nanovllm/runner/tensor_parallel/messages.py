"""What rank 0 and the others tell each other, as MessagePack.

A step tells only what has changed since the step before: of a sequence's tokens and blocks those that are new.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


# ---- from rank 0 -----------------------------------------------------------------------------------------------


class Start(_Message):
    """Be this rank. Answered by ``Done`` when all modules are loaded, then, once all ranks have met at ``port`` and the
    weights are loaded, again."""

    rank: int
    port: int
    device: str
    config: Config
    spec: ModelSpec
    model_path: str | None
    """None: random weights."""


class Count(_Message):
    """Find out how many KV blocks there is memory for. Answered by ``Counted``."""


class Allocate(_Message):
    """Make a KV pool of so many blocks, and record graphs. Answered by ``Done``."""

    num_blocks: int


class NewSequence(msgspec.Struct, frozen=True, array_like=True):
    """A sequence that is in a batch for the first time; what draws depend on, and how rank 0 calls it from now on."""

    number: int
    request_id: str
    """As Python writes it."""
    prompt_token_ids: list[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None


class SequenceStep(msgspec.Struct, frozen=True, array_like=True):
    """A sequence of a batch: what a step computes of it, and what has changed since it was last in a batch."""

    number: int
    num_cached_tokens: int
    num_scheduled_tokens: int
    num_preemptions: int
    """Larger than last time: the blocks of then are gone, and ``new_blocks`` are all."""
    new_tokens: list[int]
    """Behind the tokens that were known; the last may be ``UNKNOWN_TOKEN``, which stands there until it is known."""
    new_blocks: list[int]


class Step(_Message):
    """Compute this batch; if ``is_to_be_agreed``, find out whether there is memory, answer by ``Prepared``, and wait
    for ``Go``."""

    ended: list[int]
    """Sequences that come no more."""
    new: list[NewSequence]
    sequences: list[SequenceStep]
    """The batch in order."""
    is_to_be_agreed: bool


class Go(_Message):
    """Compute the prepared step; or, if some rank cannot, do not."""

    is_computed: bool


# ---- to rank 0 -------------------------------------------------------------------------------------------------


class Done(_Message):
    """What was asked for."""


class Counted(_Message):
    """There is memory for so many KV blocks."""

    num_blocks: int


class Prepared(_Message):
    """Whether there is memory for the step; if not, why, in words."""

    problem: str | None


class Failed(_Message):
    """The last message of a rank that cannot go on. ``kind``: the class of the error."""

    kind: str
    problem: str


Order: TypeAlias = "Start | Count | Allocate | Step | Go"
Answer: TypeAlias = "Done | Counted | Prepared | Failed"

encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Start | Count | Allocate | Step | Go).decode
decode_answer = msgspec.msgpack.Decoder(Done | Counted | Prepared | Failed).decode
