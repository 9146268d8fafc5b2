"""A card that others use, too: a pool takes of what they have left. To be run while nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nanovllm.config import Config
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.kv_cache import block_bytes
from nanovllm.runner.model_runner import ModelRunner
from tests.gpu.memory import all_taken_but

pytestmark = pytest.mark.gpu


def test_what_others_have_taken_is_not_counted() -> None:
    total_bytes = torch.cuda.mem_get_info()[1]
    with all_taken_but(total_bytes // 4):
        runner = ModelRunner(Config(device="cuda"), spec=replace(ModelSpec.preset("qwen3-0.6b"), num_layers=2))
        pool_bytes = runner.num_kv_blocks * block_bytes(runner.spec, runner.config.kvcache_block_size, runner.dtype)
        assert 0.1 * total_bytes < pool_bytes < 0.25 * total_bytes
        runner.close()
