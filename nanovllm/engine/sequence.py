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
        "token_ids",
    )

    def __init__(
        self,
        token_ids: TokenIds[int],
        sampling_params: SamplingParams | None = None,
        request_id: RequestId | None = None,
        stop_condition: Callable[[Sequence], bool] | None = None,
        priority: int = 0,
    ) -> None:
        """``token_ids``: the prompt, which ``prompt`` keeps as it was.

        ``request_id``: None lets the scheduler number it.

        ``stop_condition``: asked after each new token whether the request ends here (reason ``stop``).
        ``priority``: for the policy ``priority``; the lower, the earlier.
        Raises ``RequestError`` for an empty prompt or ids that are no token ids.
        """
        self.prompt = _checked_token_ids(token_ids)
        self.token_ids = self.prompt.tolist()
        self.sampling_params = SamplingParams() if sampling_params is None else sampling_params
        self.request_id = cast(RequestId, request_id)  # None only until the scheduler numbers it
        self.stop_condition = stop_condition
        self.priority = priority
        self.status = SequenceStatus.WAITING
        self.finish_reason: str | None = None

        self.num_prompt_tokens = self.num_tokens = len(self.token_ids)
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

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt as submitted."""
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def completion_token_ids(self) -> list[int]:
        """The tokens generated so far, as far as they are known."""
        num_known_tokens = self.num_tokens - (self.last_token == UNKNOWN_TOKEN)
        return self.token_ids[self.num_prompt_tokens : num_known_tokens]

    def token_bytes(self, start: int, end: int) -> bytes:
        """The tokens ``[start, end)``, 32 bits each: what blocks are hashed by. Those of a prompt are there as such."""
        if end <= self.num_prompt_tokens:
            return self.prompt[start:end].tobytes()
        return array("I", self.token_ids[start:end]).tobytes()

    @property
    def last_token(self) -> int:
        """The newest token: what a decode step computes."""
        return self.token_ids[-1]

    @property
    def is_finished(self) -> bool:
        """Whether the sequence has left the engine, for whatever reason."""
        return self.status is SequenceStatus.FINISHED

    def append_token(self, token_id: int) -> None:
        """Add a sampled token. Its KV is computed in the next step that schedules this sequence."""
        self.token_ids.append(token_id)
        self.num_tokens += 1

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
