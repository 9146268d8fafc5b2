"""The memory of a card, taken away."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def all_taken_but(spare_bytes: int) -> Iterator[None]:
    """So much is free in the body and no more, neither on the card nor in what torch has kept of earlier tests."""
    gc.collect()
    torch.cuda.empty_cache()
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - spare_bytes, dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del ballast
        torch.cuda.empty_cache()
