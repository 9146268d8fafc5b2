"""Follows a run and says of each prompt block whether it was reused, and if not, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksHashed,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    RequestRejected,
)
from sim.block_hashes import prompt_hashes
from sim.prefix_reuse.causes import Gain, Miss


class _Prompt(msgspec.Struct, gc=False):
    """A request's prompt while it is followed."""

    ids: Sequence[int]
    hashes: list[int]
    num_whole: int
    """Blocks that are full; at most one is not."""
    number: int = -1
    """In the order of arrival, counted from 0; -1 before it has arrived."""
    is_repeat: list[bool] = []
    is_admitted: bool = False
    num_published: int = 0
    """Leading blocks of its table that are in the cache."""

    @property
    def repeats(self) -> list[int]:
        """The indices of the blocks that are repeats."""
        return [index for index, is_repeat in enumerate(self.is_repeat) if is_repeat]

    @property
    def whole_hashes(self) -> list[int]:
        """Of the blocks that are full."""
        return self.hashes[: self.num_whole]

    def place(self, index: int) -> tuple[int, int]:
        """What stands before the block, and its own id."""
        return self.hashes[index - 1] if index else 0, self.ids[index]


class ReuseObserver:
    """Is told each prompt before its request is handed over, and each event of a run."""

    def __init__(self, block_size: int) -> None:
        self.num_requests = 0
        self.num_prompt_blocks = 0
        self.num_repeats = 0
        self.num_hits = 0
        self.misses: Counter[Miss] = Counter()
        self.gains: Counter[Gain] = Counter()

        self._block_size = block_size
        self._prompts: dict[RequestId, _Prompt] = {}
        self._seen_ids: set[int] = set()
        self._first_whole: dict[int, int] = {}
        """Hash -> number of the first request whose prompt holds such a block, full, and was not refused."""
        self._first_refused: dict[int, int] = {}
        """The same of those that were refused."""
        self._first_partial: dict[tuple[int, int], int] = {}
        """Place -> number of the first request whose prompt ends within such a block."""

        self._hash_of_block: dict[int, int] = {}
        """Of the blocks that are cached."""
        self._answers: set[int] = set()
        """Cached blocks that hold tokens of an answer."""
        self._num_copies: Counter[int] = Counter()
        """Hash -> cached blocks that hold it; those that ever were have an entry."""
        # Of the admission that is being told: the events of one request's first blocks come in a row.
        self._hits: list[int] = []
        self._evicted: list[int] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            RequestAdded: self._add,
            RequestRejected: self._reject,
            PrefixHit: self._hit,
            BlockEvicted: self._evict,
            BlocksAllocated: self._allocate,
            BlocksHashed: self._publish,
            Preempted: self._preempt,
            RequestFinished: self._finish,
        }

    def expect(self, request: RequestId, token_ids: Sequence[int], ids: Sequence[int] | None = None) -> None:
        """A request that is going to arrive. ``ids``: what its prompt's blocks hold, as a trace tells it, the last one
        included; without them, the tokens tell."""
        hashes = prompt_hashes(token_ids, self._block_size)
        ids = hashes if ids is None else ids
        assert len(ids) == len(hashes), f"request {request!r} has {len(ids)} ids for {len(hashes)} blocks"
        self._prompts[request] = _Prompt(ids, hashes, len(token_ids) // self._block_size)

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event of the run."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def finish(self) -> None:
        """The run is over: what was not admitted is not going to be."""
        for prompt in self._prompts.values():
            self._miss_all(prompt, "not_admitted")
        self._prompts = {}

    # ---- requests --------------------------------------------------------------------------------------------

    def _arrive(self, prompt: _Prompt) -> None:
        """What repeats, repeats what came before."""
        prompt.number = self.num_requests
        for block_id in prompt.ids:
            prompt.is_repeat.append(block_id in self._seen_ids)
            self._seen_ids.add(block_id)
        if prompt.num_whole < len(prompt.ids):
            self._first_partial.setdefault(prompt.place(prompt.num_whole), prompt.number)
        self.num_requests += 1
        self.num_prompt_blocks += len(prompt.ids)
        self.num_repeats += len(prompt.repeats)

    def _add(self, event: RequestAdded) -> None:
        prompt = self._prompts[event.request]
        self._arrive(prompt)
        for content in prompt.whole_hashes:
            self._first_whole.setdefault(content, prompt.number)

    def _reject(self, event: RequestRejected) -> None:
        prompt = self._prompts.pop(event.request)
        self._arrive(prompt)
        for content in prompt.whole_hashes:
            self._first_refused.setdefault(content, prompt.number)
        self._miss_all(prompt, "refused")

    def _preempt(self, event: Preempted) -> None:
        self._prompts[event.request].num_published = 0

    def _finish(self, event: RequestFinished) -> None:
        self._miss_all(self._prompts.pop(event.request), "not_admitted")

    def _miss_all(self, prompt: _Prompt, cause: Miss) -> None:
        if not prompt.is_admitted:
            self.misses[cause] += len(prompt.repeats)

    # ---- blocks ----------------------------------------------------------------------------------------------

    def _hit(self, event: PrefixHit) -> None:
        self._hits = event.blocks
        self._prompts[event.request].num_published = len(event.blocks)

    def _evict(self, event: BlockEvicted) -> None:
        self._evicted.append(event.block)

    def _allocate(self, event: BlocksAllocated) -> None:
        """The end of an admission, or of a growth: what was evicted for it was in the cache when it was looked at."""
        prompt = self._prompts[event.request]
        if not prompt.is_admitted:
            prompt.is_admitted = True
            self._judge(prompt, self._hits)
        self._hits = []
        for block in self._evicted:
            self._num_copies[self._hash_of_block.pop(block)] -= 1
            self._answers.discard(block)
        self._evicted = []

    def _publish(self, event: BlocksHashed) -> None:
        prompt = self._prompts[event.request]
        for block, digits in zip(event.blocks, event.hashes, strict=True):
            self._hash_of_block[block] = content = int(digits, 16)
            self._num_copies[content] += 1
        self._answers.update(event.blocks[max(0, prompt.num_whole - prompt.num_published) :])
        prompt.num_published += len(event.blocks)

    # ---- judging ---------------------------------------------------------------------------------------------

    def _judge(self, prompt: _Prompt, hits: list[int]) -> None:
        """The request is admitted with these blocks reused."""
        self.num_hits += len(hits)
        for block, is_repeat in zip(hits, prompt.is_repeat, strict=False):
            if not is_repeat:
                self.gains["answer" if block in self._answers else "later_arrival"] += 1
        self.misses.update(self._cause(prompt, index) for index in prompt.repeats if index >= len(hits))

    def _cause(self, prompt: _Prompt, index: int) -> Miss:
        """Why the repeated block ``index`` was not found; see ``MISSES``."""
        content, number = prompt.hashes[index], prompt.number
        if index == len(prompt.hashes) - 1:
            return "last_whole" if index < prompt.num_whole else "last_partial"
        if content in self._num_copies:
            # Prefixes live longest: as long as a block is kept, so are those before it.
            assert not self._num_copies[content], f"block {index} of prompt {number} is kept, and was not found"
            return "evicted"
        if self._first_whole.get(content, number) < number:
            return "not_computed"
        if self._first_refused.get(content, number) < number:
            return "refused"
        return "never_whole" if self._first_partial.get(prompt.place(index), number) < number else "other_prefix"
