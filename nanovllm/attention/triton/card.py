"""What launches need to know of the card that they run on."""

from __future__ import annotations

from functools import cache

import torch

MEASURED_MULTIPROCESSORS = 132
"""Of the NVIDIA H200, on which the launch parameters were measured."""


@cache
def multiprocessors(device: torch.device) -> int:
    """Of this card; on a CPU, in Triton's interpreter, a few: it runs one program after the other."""
    if device.type != "cuda":
        return 8
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def shared_memory_bytes(device: torch.device) -> int:
    """The most that one program may take."""
    if device.type != "cuda":
        return 232_448
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def launch_options(num_warps: int, pdl: bool) -> dict[str, int | bool]:
    """How Triton compiles and starts a kernel. ``pdl``: it may start while the one ahead of it ends (programmatic
    dependent launch, from Hopper on). Since kernels let the next one start before they wait themselves, those further
    ahead may still run, too. So before its wait a kernel reads only what was written ahead of a launch without ``pdl``
    that lies between, and it writes nothing. After the wait all kernels ahead have ended."""
    return {"num_warps": num_warps, "launch_pdl": pdl, "enable_fp_fusion": True}
