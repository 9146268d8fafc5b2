"""The ranks that share each layer: what they sum up and what they show each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Group(Protocol):
    """``size`` ranks, of which this process is number ``rank``, each with a part of every layer.

    All ranks call the same methods in the same order, with tensors of the same shape. On a card the calls are queued
    like kernel launches, and a CUDA graph records them.
    """

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over all ranks, in its place; contiguous."""
        ...

    def all_gather(self, x: Tensor) -> Tensor:
        """The ``x`` of all ranks, ``[size, *x.shape]``."""
        ...

    def before_abort(self, release: Callable[[], object]) -> None:
        """Let the bound method ``release`` be called before the connections end: CUDA graphs that use them have to go
        first. Does not keep alive whose method it is."""
        ...


class SingleGroup:
    """One rank that has all of every layer: nothing to do."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor) -> Tensor:
        """See ``Group``."""
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        """See ``Group``."""
        return x[None]

    def before_abort(self, release: Callable[[], object]) -> None:
        """See ``Group``: there are no connections."""


def share_of(total: int, group: Group) -> range:
    """The part of ``total`` things that is this rank's: as even as can be, ranks in order."""
    return range(total * group.rank // group.size, total * (group.rank + 1) // group.size)


class VocabularyShard:
    """The token ids whose embeddings, and rows of the output head, a rank holds."""

    def __init__(self, size: int, group: Group) -> None:
        """``size``: of the whole vocabulary."""
        self.size = size
        self.group = group
        self.token_ids = share_of(size, group)
        self.max_len = -(-size // group.size)
        """The most token ids that a rank holds."""

    @property
    def is_whole(self) -> bool:
        """Whether this rank holds all of them."""
        return self.group.size == 1

    def gather_logits(self, logits: Tensor) -> Tensor:
        """``[n, len(token_ids)]`` of each rank -> ``[n, size]`` on all."""
        if self.is_whole:
            return logits
        num_rows, num_own = logits.shape
        padded = logits.new_empty(num_rows, self.max_len)
        padded[:, :num_own] = logits
        parts = self.group.all_gather(padded)
        lens = [self.size * (rank + 1) // len(parts) - self.size * rank // len(parts) for rank in range(len(parts))]
        return torch.cat([part[:, :length] for part, length in zip(parts, lens, strict=True)], dim=1)
