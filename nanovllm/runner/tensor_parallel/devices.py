"""Where the ranks of one machine compute."""

from __future__ import annotations

import os

import torch

from nanovllm.config import Config
from nanovllm.errors import ConfigError


def devices_of_ranks(size: int, first: torch.device) -> list[torch.device]:
    """A device for each rank; ``first`` is rank 0's. Raises ``ConfigError`` if there are too few cards."""
    if first.type == "cpu":
        return [first] * size
    num_cards = torch.cuda.device_count()
    if size > num_cards:
        raise ConfigError("tensor_parallel_size", size, f"at most {num_cards}, the GPUs that torch finds here")
    return [torch.device("cuda", (first.index + rank) % num_cards) for rank in range(size)]


def threads_of_rank(config: Config, device: torch.device) -> int:
    """``config.num_threads``, or on a CPU each rank's share of its cores."""
    if config.num_threads != -1 or device.type != "cpu":
        return config.num_threads
    return max((os.cpu_count() or 1) // config.tensor_parallel_size, 1)
