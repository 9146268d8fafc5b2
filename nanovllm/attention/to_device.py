"""From the host to where a step is computed."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """A tensor of ``values`` on ``device``, without waiting for what is queued there. ``values`` must stay as they are
    where the device is the CPU: the tensor shares their memory."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
