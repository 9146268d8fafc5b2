"""One request in a replay."""

from __future__ import annotations

from typing import Literal

import msgspec

from nanovllm.trace.events import RequestId
from nanovllm.trace.state.laws import BrokenLawError

Status = Literal["waiting", "running", "finished"]


class RequestState(msgspec.Struct, gc=False, array_like=True):
    """One request, with the counters of the engine's ``Sequence``."""

    request: RequestId
    arrival: float
    num_prompt_tokens: int
    max_tokens: int
    num_tokens: int
    """Prompt + generated tokens, the newest included."""
    status: Status = "waiting"
    num_cached_tokens: int = 0
    """Tokens whose KV is in the cache. When it grows: see ``replay``."""
    num_scheduled_tokens: int = 0
    """Tokens that the current step computes; 0 between steps."""
    num_preemptions: int = 0
    num_published_blocks: int = 0
    """Leading blocks of the table that are shareable."""
    block_table: list[int] = []
    finish_reason: str | None = None
    is_prefilling: bool = False
    """Whether it was admitted to ``running`` and part of its prompt is not scheduled yet."""

    @property
    def num_completion_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    def num_missing_blocks(self, block_size: int) -> int:
        """Blocks that its table lacks to hold all its tokens."""
        return -(-self.num_tokens // block_size) - len(self.block_table)

    def require(self, status: Status, doing: str) -> None:
        """Raise ``BrokenLawError`` unless it stands in this queue."""
        if self.status != status:
            raise BrokenLawError("queue", f"request {self.request} is {doing}, but it is {self.status}, not {status}")

    def schedule(self, num_tokens: int, block_size: int) -> None:
        """Let the current step compute this many tokens after the cached ones."""
        if self.num_scheduled_tokens:
            raise BrokenLawError("once_a_step", f"request {self.request} is scheduled a second time in one step")
        end, num_slots = self.num_cached_tokens + num_tokens, len(self.block_table) * block_size
        if end > num_slots:
            raise BrokenLawError(
                "coverage", f"request {self.request} computes tokens up to {end}, its table has slots for {num_slots}"
            )
        self.num_scheduled_tokens = num_tokens

    def settle(self) -> None:
        """Take in the step's results: what was scheduled is now cached."""
        self.num_cached_tokens += self.num_scheduled_tokens
        self.num_scheduled_tokens = 0

    def check_release(self, blocks: list[int]) -> None:
        """Raise ``BrokenLawError`` unless ``blocks`` are its table, the deepest first."""
        expected = self.block_table[::-1]
        if blocks != expected:
            raise BrokenLawError(
                "release", f"request {self.request} frees blocks {blocks}, its table from the end is {expected}"
            )

    def reset(self) -> None:
        """Forget the cache: its blocks are given back."""
        self.block_table = []
        self.num_published_blocks = 0
        self.num_cached_tokens = 0
        self.is_prefilling = False
