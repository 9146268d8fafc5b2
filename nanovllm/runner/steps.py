"""Which code computes the steps: plain torch, fused kernels on an NVIDIA card, or flash-attn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from nanovllm.config import Config
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.graphs import GraphSizes

_KERNEL_HEAD_DIMS = (64, 96, 128, 256)
_log = logging.getLogger(__name__)


def do_nothing() -> None:
    """What ``Steps.before_launch`` does unless it is replaced."""


class Steps(Protocol):
    """Computes steps over one KV pool."""

    graph_sizes: GraphSizes
    """Of the CUDA graphs that were recorded."""
    takes_unknown_tokens: bool
    """Whether the newest token of a sequence may be ``UNKNOWN_TOKEN`` if the step before sampled it."""
    before_launch: Callable[[], object]
    """Called in ``compute`` when the inputs are prepared, right before the model's work is launched. Whoever wants to
    know the moment replaces it."""

    def record_graphs(self) -> None:
        """Record CUDA graphs of what they can stand for, unless the config says otherwise; while no KV is in the pool
        that is still needed. Without it, steps are computed launch by launch."""
        ...

    def measure_graph_bytes(self) -> int:
        """What ``record_graphs`` will take of the card."""
        ...

    def compute(self, sequences: list[Sequence]) -> Tensor:
        """The scheduled tokens of each sequence; returns one sampled token for each, ``[num_seqs]``. On a card the
        result is valid until the next step is computed. After an error, steps of other sequences may be computed."""
        ...


@dataclass(frozen=True)
class Choice:
    """An implementation of the attention: ``torch``, ``triton`` or ``flash``."""

    attention: str
    reason: str
    """Why it was chosen, and why none that is faster; for people."""


def choose_attention(config: Config, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> Choice:
    """``config.attention`` or, for ``auto``, the first of ``triton``, ``flash`` and ``torch`` that this machine and
    model allow: the fastest. On a card, the choice and its reason are logged. Raises ``ConfigError`` if the one that is
    asked for is not possible."""
    if config.attention == "auto":
        choice = _choose_fastest(config, spec, device, dtype)
    else:
        obstacle = _find_obstacle(config.attention, config, spec, device, dtype)
        if obstacle is not None:
            other = "flash" if config.attention == "triton" else "triton"
            is_possible = _find_obstacle(other, config, spec, device, dtype) is None
            allowed = f"torch, {other} or auto" if is_possible else "torch or auto"
            raise ConfigError("attention", config.attention, f"{allowed}, since {obstacle}")
        choice = Choice(config.attention, "it was asked for" + _disadvantage(config.attention))
    if device.type != "cpu":  # there, nothing was to be chosen from
        _log.info("attention by %s: %s", choice.attention, choice.reason)
    return choice


def _choose_fastest(config: Config, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> Choice:
    if device.type != "cuda":
        return Choice("torch", "the others need an NVIDIA GPU")
    obstacles = []
    for attention in ("triton", "flash"):
        obstacle = _find_obstacle(attention, config, spec, device, dtype)
        if obstacle is None:
            reason = "; ".join(obstacles) or "it is the fastest on this card"
            return Choice(attention, reason + _disadvantage(attention))
        obstacles.append(f"not {attention}, since {obstacle}")
    return Choice("torch", "; ".join(obstacles))


def _disadvantage(attention: str) -> str:
    if attention == "flash" and not _has_package("triton"):
        return "; decode steps are not recorded as CUDA graphs, since the package triton is not installed"
    return ""


# ---- what stands in the way ------------------------------------------------------------------------------------


def _find_obstacle(
    attention: str, config: Config, spec: ModelSpec, device: torch.device, dtype: torch.dtype
) -> str | None:
    if attention == "triton":
        return _why_not_triton(config, spec, device)
    if attention == "flash":
        return _why_not_flash(config, spec, device, dtype)
    return None


def _why_not_triton(config: Config, spec: ModelSpec, device: torch.device) -> str | None:
    block_size = config.kvcache_block_size
    if device.type != "cuda":
        return "its kernels need an NVIDIA GPU"
    if not _has_package("triton"):
        return "the package triton is not installed"
    if spec.head_dim not in _KERNEL_HEAD_DIMS:
        return f"its kernels are for heads of {', '.join(map(str, _KERNEL_HEAD_DIMS))} numbers, not {spec.head_dim}"
    if block_size < 16 or block_size & (block_size - 1):
        return f"its kernels are for blocks of 16, 32, 64 ... tokens, not {block_size}"
    return None


def _why_not_flash(config: Config, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cuda":
        return "flash-attn needs an NVIDIA GPU"
    if not _has_package("flash_attn"):
        return "the package flash-attn is not installed"
    try:
        from nanovllm.attention import flash_attention as flash
    except ImportError as error:  # built for another torch, say
        return f"the package flash-attn cannot be imported ({str(error).splitlines()[0]})"
    if dtype not in flash.DTYPES:
        return f"flash-attn computes in bfloat16 and float16, not in {str(dtype).removeprefix('torch.')}"
    if config.kvcache_block_size % flash.BLOCK_SIZE_UNIT:
        unit, block_size = flash.BLOCK_SIZE_UNIT, config.kvcache_block_size
        return f"flash-attn reads blocks of {unit}, {2 * unit}, {3 * unit} ... tokens, not of {block_size}"
    if spec.head_dim % flash.HEAD_DIM_UNIT or spec.head_dim > flash.MAX_HEAD_DIM:
        unit, most = flash.HEAD_DIM_UNIT, flash.MAX_HEAD_DIM
        return f"flash-attn takes heads of {unit}, {2 * unit}, {3 * unit} ... {most} numbers, not of {spec.head_dim}"
    return flash.find_obstacle(spec.head_dim, dtype, device)


def _has_package(name: str) -> bool:
    return find_spec(name) is not None


# ---- the chosen one --------------------------------------------------------------------------------------------


def new_steps(attention: str, config: Config, spec: ModelSpec, model: Decoder, pool: Tensor) -> Steps:
    """``attention``: as ``choose_attention`` chose. ``pool``: see ``nanovllm.attention.interface``."""
    if attention == "triton":
        from nanovllm.runner.fused_steps import FusedSteps

        return FusedSteps(config, spec, model, pool)
    from nanovllm.runner.eager_steps import EagerSteps

    if attention == "flash":
        if _has_package("triton"):  # what is recorded draws by its kernels
            from nanovllm.runner.flash_steps import FlashSteps

            return FlashSteps(config, spec, model, pool)
        from nanovllm.attention.flash_attention import FlashAttention

        return EagerSteps(config, spec, model, FlashAttention(pool), pool.device)
    from nanovllm.attention.torch_attention import TorchAttention

    return EagerSteps(config, spec, model, TorchAttention(pool), pool.device)
