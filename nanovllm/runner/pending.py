"""Tokens on their way from the card."""

from __future__ import annotations

import torch
from torch import Tensor


class PendingTokens:
    """The ``PendingStep`` of a card: its sampled tokens, copied to the host as soon as they are there."""

    def __init__(self, tokens: Tensor) -> None:
        """``tokens``: ``[num_seqs]`` on the card, computed by work that is already submitted to the current stream."""
        self._on_host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        self._on_host.copy_(tokens, non_blocking=True)
        self._is_there = torch.cuda.Event()
        self._is_there.record()

    def result(self) -> list[int]:
        """Wait for them."""
        self._is_there.synchronize()
        return self._on_host.tolist()
