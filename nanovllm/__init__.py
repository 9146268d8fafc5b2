"""Nano-vLLM Lab: an LLM engine whose scheduler decides, whose backend computes and whose trace tells."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nanovllm.version import __version__

if TYPE_CHECKING:
    from nanovllm.config import Config
    from nanovllm.llm import LLM
    from nanovllm.llm.outputs import RequestOutput
    from nanovllm.sampling_params import SamplingParams

__all__ = ["LLM", "Config", "RequestOutput", "SamplingParams", "__version__"]

_HOMES = {
    "LLM": "nanovllm.llm",
    "Config": "nanovllm.config",
    "RequestOutput": "nanovllm.llm.outputs",
    "SamplingParams": "nanovllm.sampling_params",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the simulator and the views need no torch, and no wait for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
