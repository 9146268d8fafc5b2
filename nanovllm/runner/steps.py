"""Which code computes the steps: plain torch, or fused kernels on an NVIDIA card."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from nanovllm.config import Config
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder

_KERNEL_HEAD_DIMS = (64, 96, 128, 256)
_log = logging.getLogger(__name__)


class Steps(Protocol):
    """Computes steps over one KV pool."""

    takes_unknown_tokens: bool
    """Whether the newest token of a sequence may be ``UNKNOWN_TOKEN`` if the step before sampled it."""

    def compute(self, sequences: list[Sequence]) -> Tensor:
        """The scheduled tokens of each sequence; returns one sampled token for each, ``[num_seqs]``. On a card the
        result is valid until the next step is computed."""
        ...


def choose_attention(config: Config, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> str:
    """``config.attention`` or, for ``auto``, the fastest that this machine and model allow; on a card, the choice and
    its reason are logged. Raises ``ConfigError`` if the one that is asked for is not possible."""
    obstacle = _why_not_triton(config, spec, device)
    if config.attention == "triton" and obstacle is not None:
        raise ConfigError("attention", config.attention, f"torch or auto, since {obstacle}")
    choice = "torch" if config.attention == "torch" or obstacle is not None else "triton"
    if device.type == "cpu":  # there was nothing to choose from
        return choice
    reason = "it was asked for" if config.attention != "auto" else obstacle or "it is the fastest on this card"
    _log.info("attention by %s: %s", choice, reason)
    return choice


def _why_not_triton(config: Config, spec: ModelSpec, device: torch.device) -> str | None:
    block_size = config.kvcache_block_size
    if device.type != "cuda":
        return "its kernels need an NVIDIA GPU"
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if spec.head_dim not in _KERNEL_HEAD_DIMS:
        return f"its kernels are for heads of {', '.join(map(str, _KERNEL_HEAD_DIMS))} numbers, not {spec.head_dim}"
    if block_size < 16 or block_size & (block_size - 1):
        return f"its kernels are for blocks of 16, 32, 64 ... tokens, not {block_size}"
    return None


def new_steps(attention: str, config: Config, spec: ModelSpec, model: Decoder, pool: Tensor) -> Steps:
    """``attention``: as ``choose_attention`` chose. ``pool``: see ``nanovllm.attention.interface``."""
    if attention == "triton":
        from nanovllm.runner.fused_steps import FusedSteps

        return FusedSteps(config, spec, model, pool)
    from nanovllm.runner.eager_steps import EagerSteps

    return EagerSteps(config, spec, model, pool)
