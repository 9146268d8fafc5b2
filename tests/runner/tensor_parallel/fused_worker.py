"""A worker that computes by the fused kernels, in Triton's interpreter."""

from __future__ import annotations

import torch
from torch import Tensor

from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner import rank
from nanovllm.runner.fused_steps import FusedSteps
from nanovllm.runner.tensor_parallel import worker


def new_fused_steps(_attention: str, config: Config, spec: ModelSpec, model: Decoder, pool: Tensor) -> FusedSteps:
    """In place of ``new_steps``."""
    return FusedSteps(config, spec, model, pool)


def main(descriptor: int) -> None:
    """As the real one."""
    torch.set_num_threads(1)
    rank.new_steps = new_fused_steps
    worker.main(descriptor)
