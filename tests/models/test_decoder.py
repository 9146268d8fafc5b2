"""The decoder's logits against transformers', token by token, over the paged KV pool."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from nanovllm.attention.torch_attention import TorchAttention
from nanovllm.engine.sequence import Sequence
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.inputs import build_step_inputs
from nanovllm.runner.kv_cache import allocate_pool
from nanovllm.runner.weights import load_weights
from tests.tiny_models import FAMILIES, VOCAB_SIZE, make_model, save_model

BLOCK_SIZE = 4
CPU = torch.device("cpu")
TOKENS = [(37 * i + 11) % VOCAB_SIZE for i in range(40)]


def load(directory: Path, dtype: torch.dtype) -> tuple[Decoder, TorchAttention]:
    spec = ModelSpec.from_directory(directory)
    model = Decoder(spec, max_position=64, dtype=dtype)
    load_weights(model, directory)
    return model, TorchAttention(allocate_pool(spec, 16, BLOCK_SIZE, dtype, CPU))


def all_logits(model: Decoder, attention: TorchAttention, chunk_lens: list[int]) -> Tensor:
    """Logits after each of ``TOKENS``, computed chunk by chunk: ``[num_tokens, vocab_size]``."""
    seq = Sequence(TOKENS)
    seq.block_table = list(range(15, 15 - len(TOKENS) // BLOCK_SIZE, -1))
    logits = []
    for length in chunk_lens:
        seq.num_scheduled_tokens = length
        inputs = build_step_inputs([seq], BLOCK_SIZE, CPU)
        hidden = model(inputs.token_ids, inputs.positions, attention.begin_step(inputs.attention))
        logits.append(model.compute_logits(hidden))
        seq.num_cached_tokens += length
    return torch.cat(logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk_lens", [[40], [1] * 40, [7, 1, 20, 12]], ids=["whole", "single", "chunks"])
@torch.inference_mode()
def test_logits_are_those_of_transformers(family: str, chunk_lens: list[int], tmp_path: Path) -> None:
    expected = make_model(family)(torch.tensor([TOKENS])).logits[0]
    logits = all_logits(*load(save_model(family, tmp_path), torch.float32), chunk_lens)
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_half_precision_stays_close(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    exact = make_model(family)(torch.tensor([TOKENS])).logits[0]
    theirs = make_model(family).to(dtype)(torch.tensor([TOKENS])).logits[0].float()
    ours = all_logits(*load(save_model(family, tmp_path), dtype), [40]).float()
    # As close to the exact logits as transformers in the same type, give or take.
    assert (ours - exact).square().mean() < 1.5 * (theirs - exact).square().mean()
