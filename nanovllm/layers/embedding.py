"""Token embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanovllm.layers.linear import empty_parameter


class Embedding(nn.Module):
    """A vector per token id; ``weight`` is ``[vocab_size, hidden_size]``. Tied models use it as output head too."""

    def __init__(self, vocab_size: int, hidden_size: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = empty_parameter(vocab_size, hidden_size, dtype=dtype)

    def forward(self, token_ids: Tensor) -> Tensor:
        """``[num_tokens]`` int64 -> ``[num_tokens, hidden_size]``."""
        return F.embedding(token_ids, self.weight)
