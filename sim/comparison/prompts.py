"""Prompts that share what those of a recorded run shared. The trace does not tell their tokens, but the hashes of full
blocks: equal hash, equal content, and equal content before it."""

from __future__ import annotations

from collections.abc import Iterable

from nanovllm.trace.events import (
    AnyEvent,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    PrefixHit,
    RequestAdded,
    RequestId,
    TokensAppended,
    TraceStarted,
)
from sim.token_ids import DEFAULT_VOCAB_SIZE, own_token_ids


def prompts_of(events: Iterable[AnyEvent]) -> dict[RequestId, list[int]]:
    """For each request, token ids: drawn, but for the blocks whose content another request had before it. An answer
    that became part of a later prompt is found there too. Ids are below ``DEFAULT_VOCAB_SIZE``, even if the model knows
    fewer."""
    contents = _Contents()
    for event in events:
        contents.apply(event)
    return contents.prompts


class _Contents:
    """What each sequence and each block holds."""

    def __init__(self) -> None:
        self.prompts: dict[RequestId, list[int]] = {}
        self._answers: dict[RequestId, list[int]] = {}
        self._tables: dict[RequestId, list[int]] = {}
        self._hash_of_block: dict[int, str] = {}
        self._tokens_of_hash: dict[str, list[int]] = {}
        self._block_size = 1

    def apply(self, event: AnyEvent) -> None:
        match event:
            case TraceStarted():
                self._block_size = event.config.get("block_size", 1)
            case RequestAdded():
                self.prompts[event.request] = own_token_ids(len(self.prompts), event.prompt_tokens)
                self._answers[event.request] = []
                self._tables[event.request] = []
            case PrefixHit():
                self._tables[event.request] = list(event.blocks)
                for place, block in enumerate(event.blocks):
                    self._fill(event.request, place, self._hash_of_block[block])
            case BlocksAllocated():
                self._tables[event.request] += event.blocks
            case BlocksHashed():
                for block, block_hash in zip(event.blocks, event.hashes, strict=True):
                    place = self._tables[event.request].index(block)
                    self._hash_of_block[block] = block_hash
                    self._fill(event.request, place, block_hash)
            case TokensAppended():
                for request, token in zip(event.requests, event.tokens, strict=True):
                    self._answers[request].append(token)
            case BlocksFreed():
                self._tables[event.request] = []
            case _:
                pass

    def _fill(self, request: RequestId, place: int, block_hash: str) -> None:
        """Block number ``place`` of a request has the content called ``block_hash``, made up if it is new."""
        prompt = self.prompts[request]
        low, high = place * self._block_size, (place + 1) * self._block_size
        content = self._tokens_of_hash.get(block_hash)
        if content is None:
            if low < len(prompt):  # where blocks are small, drawn ids may be equal by chance
                prompt[low] = DEFAULT_VOCAB_SIZE - 1 - len(self._tokens_of_hash) % DEFAULT_VOCAB_SIZE
            start = max(0, low - len(prompt))
            answer = self._answers[request][start : start + self._block_size]
            self._tokens_of_hash[block_hash] = (prompt[low:high] + answer)[: self._block_size]
        elif low < len(prompt):
            prompt[low:high] = content[: min(high, len(prompt)) - low]
