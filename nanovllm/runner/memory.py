"""How much memory there is, in numbers and in words."""

from __future__ import annotations

import os

import torch

from nanovllm.model_spec import ModelSpec


def gib(num_bytes: int) -> str:
    """A memory size for people."""
    return f"{num_bytes / 2**30:.2f} GiB"


_NO_MEMORY = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What the errors of a CPU, of the driver and of libraries say; they have no type of their own."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether it means that memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY)


def first_line(error: Exception) -> str:
    """torch's messages go on for a page."""
    return str(error).partition("\n")[0]


def memory_bytes(device: torch.device) -> int:
    """What is free on a card, or all that the machine has: a CPU's system promises more than there is, and ends the
    process when it is used."""
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def activation_bytes(spec: ModelSpec, num_tokens: int, num_seqs: int, dtype: torch.dtype) -> int:
    """About what a step holds at a time beside weights and KV pool, in the layer at its largest and when it draws.
    ``spec``: of the rank that computes it."""
    attention = 2 * spec.q_size + 2 * spec.kv_size
    layer = 3 * spec.hidden_size + max(attention, 3 * spec.intermediate_size)
    draws = num_seqs * spec.vocab_size * (dtype.itemsize + 3 * torch.float32.itemsize)
    return max(num_tokens * layer * dtype.itemsize, draws)
