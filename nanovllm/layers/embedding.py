"""Token embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanovllm.layers.group import VocabularyShard
from nanovllm.layers.linear import empty_parameter


class Embedding(nn.Module):
    """A vector per token id. ``weight`` is ``[len(vocabulary.token_ids), hidden_size]``: a rank holds those of its own
    token ids, and the ranks' results add up. Tied models use it as output head too."""

    def __init__(self, vocabulary: VocabularyShard, hidden_size: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.weight = empty_parameter(len(vocabulary.token_ids), hidden_size, dtype=dtype)

    def forward(self, token_ids: Tensor) -> Tensor:
        """``[num_tokens]``, int32 or int64 -> ``[num_tokens, hidden_size]``."""
        if self.vocabulary.is_whole:
            return F.embedding(token_ids, self.weight)
        rows = token_ids - self.vocabulary.token_ids.start
        is_elsewhere = (rows < 0) | (rows >= len(self.weight))
        hidden = F.embedding(rows.masked_fill(is_elsewhere, 0), self.weight)
        return self.vocabulary.group.all_reduce(hidden.masked_fill_(is_elsewhere[:, None], 0))
