"""One request inside the engine: its tokens, and how far their KV is computed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence as TokenIds
from enum import Enum
from operator import index
from typing import SupportsIndex, cast

from nanovllm.checks import MAX_TOKEN_ID
from nanovllm.errors import RequestError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import RequestId

UNKNOWN_TOKEN = -1
"""Stands for a sequence's newest token as long as the step that samples it is on its way (see ``lookahead``)."""


class SequenceStatus(Enum):
    """Where a sequence stands. A preempted one is ``WAITING`` again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """A prompt plus the tokens generated so far, and the counters the scheduler works with.

    Knows neither block size nor engine, so sequences of engines with different block sizes live side by side.

    ============================ ==========================================================================
    ``prompt``                   the tokens submitted, an array: of all that wait, lists would take ten times
                                 the memory
    ``generated``                the tokens sampled since; the newest may be ``UNKNOWN_TOKEN``
    ``num_prompt_tokens``        length of the prompt as submitted
    ``num_tokens``               prompt + generated tokens, the newest included
    ``num_cached_tokens``        tokens whose KV is in the cache: prefix hits + all that was computed; the
                                 newest generated token is not among them yet
    ``num_scheduled_tokens``     tokens that the current step computes; 0 between steps
    ``num_completion_tokens``    ``num_tokens - num_prompt_tokens``
    ``num_prefix_hit_tokens``    tokens that were in the cache when it was first admitted; what it finds of its own
                                 after a preemption does not count
    ============================ ==========================================================================
    """

    __slots__ = (
        "block_hashes",
        "block_table",
        "block_tokens",
        "end_token_ids",
        "finish_reason",
        "generated",
        "num_cached_tokens",
        "num_preemptions",
        "num_prefix_hit_tokens",
        "num_prompt_tokens",
        "num_published_blocks",
        "num_scheduled_tokens",
        "num_tokens",
        "num_tokens_limit",
        "priority",
        "prompt",
        "request_id",
        "sampling_params",
        "status",
        "stop_condition",
    )

    def __init__(
        self,
        token_ids: TokenIds[int],
        sampling_params: SamplingParams | None = None,
        request_id: RequestId | None = None,
        stop_condition: Callable[[Sequence], bool] | None = None,
        priority: int = 0,
    ) -> None:
        """``token_ids``: the prompt. ``request_id``: None lets the scheduler number it.

        ``stop_condition``: asked after each new token whether the request ends here (reason ``stop``).
        ``priority``: for the policy ``priority``; the lower, the earlier.
        Raises ``RequestError`` for an empty prompt or ids that are no token ids.
        """
        self.prompt = _checked_token_ids(token_ids)
        self.generated: list[int] = []
        self.sampling_params = SamplingParams() if sampling_params is None else sampling_params
        self.request_id = cast(RequestId, request_id)  # None only until the scheduler numbers it
        self.stop_condition = stop_condition
        self.priority = priority
        self.status = SequenceStatus.WAITING
        self.finish_reason: str | None = None

        self.num_prompt_tokens = self.num_tokens = len(self.prompt)
        self.num_tokens_limit = self.num_tokens + self.sampling_params.max_tokens
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0
        self.num_prefix_hit_tokens = 0
        self.num_preemptions = 0
        self.end_token_ids: frozenset[int] = frozenset(self.sampling_params.stop_token_ids)

        # Kept by the block manager: the blocks in order, and of each full block the content that identifies it
        # (computed once, kept over preemptions) and how many of them are published under this table.
        self.block_table: list[int] = []
        self.block_hashes: list[int] = []
        self.block_tokens: list[bytes] = []
        self.num_published_blocks = 0

    @property
    def max_tokens(self) -> int:
        """The most tokens to generate."""
        return self.sampling_params.max_tokens

    @property
    def num_completion_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    # ---- tokens ----------------------------------------------------------------------------------------------

    @property
    def token_ids(self) -> list[int]:
        """All tokens, the newest included. A new list each time: ``tokens`` makes no more than are asked for."""
        return [*self.prompt, *self.generated]

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt as submitted."""
        return self.prompt.tolist()

    @property
    def completion_token_ids(self) -> list[int]:
        """The tokens generated so far, as far as they are known."""
        return self.generated[:-1] if self.last_token == UNKNOWN_TOKEN else self.generated.copy()

    @property
    def last_token(self) -> int:
        """The newest token: what a decode step computes."""
        return self.generated[-1] if self.generated else self.prompt[-1]

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens ``[start, end)``."""
        num_prompt_tokens = self.num_prompt_tokens
        if start >= num_prompt_tokens:
            return self.generated[start - num_prompt_tokens : end - num_prompt_tokens]
        of_prompt = self.prompt[start:end].tolist()
        return of_prompt if end <= num_prompt_tokens else of_prompt + self.generated[: end - num_prompt_tokens]

    def token_bytes(self, start: int, end: int) -> bytes:
        """The tokens ``[start, end)``, 32 bits each, by which blocks are hashed."""
        if end <= self.num_prompt_tokens:
            return self.prompt[start:end].tobytes()
        return array("I", self.tokens(start, end)).tobytes()

    def append_token(self, token_id: int) -> None:
        """Add a sampled token. Its KV is computed in the next step that schedules this sequence."""
        self.generated.append(token_id)
        self.num_tokens += 1

    @property
    def is_finished(self) -> bool:
        """Whether the sequence has left the engine, for whatever reason."""
        return self.status is SequenceStatus.FINISHED

    def __len__(self) -> int:
        return self.num_tokens

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.status.value}, prompt {self.num_prompt_tokens}, "
            f"tokens {self.num_tokens}, cached {self.num_cached_tokens}, blocks {self.block_table})"
        )


def _checked_token_ids(token_ids: TokenIds[int]) -> array[int]:
    if len(token_ids) == 0:
        raise RequestError("empty_prompt", "the prompt is empty: at least one token is needed")
    try:
        # Else a list: of bytes, an array would take the memory.
        return array("I", token_ids if isinstance(token_ids, array) else list(token_ids))
    except (TypeError, OverflowError):
        wrong = next(token for token in token_ids if not _is_token_id(token))
        raise RequestError(
            "bad_token_id", f"the prompt holds {wrong!r}: token ids are whole numbers from 0 to {MAX_TOKEN_ID}"
        ) from None


def _is_token_id(value: object) -> bool:
    return isinstance(value, SupportsIndex) and 0 <= index(value) <= MAX_TOKEN_ID
