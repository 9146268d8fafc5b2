"""What a run depends on beside its options: the card and the versions of what computes."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from nanovllm.version import __version__

_DRIVER = Path("/proc/driver/nvidia/version")
"""Where Linux tells of NVIDIA's driver."""


def card_name(device: torch.device) -> str:
    """As its maker calls it; ``cpu`` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def versions(device: torch.device) -> dict[str, str]:
    """Name -> version, of what is installed and plays a part on ``device``."""
    found = {"nanovllm": __version__, "torch": str(torch.__version__)}
    if device.type == "cuda":
        found |= {"cuda": str(torch.version.cuda)}
        found |= {name: version(name) for name in ("triton", "flash-attn") if _is_installed(name)}
        if (driver := _driver_version()) is not None:
            found["driver"] = driver
    return found


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _driver_version() -> str | None:
    try:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", _DRIVER.read_text())
    except OSError:
        return None
    return None if found is None else found[0]
