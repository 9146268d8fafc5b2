"""A generation on a card that is interrupted, fails or is killed leaves no process and no memory behind, on the card or
beside it, and a trace of what it did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.llm.conftest import save_model
from tests.runner.ends import HOWS, assert_nothing_left, assert_told, run_to_its_end, shared_memory

pytestmark = pytest.mark.gpu

TOLERANCE_BYTES = 64 * 2**20
"""What the driver may keep to itself; the process had some hundred more."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose heads the kernels are made for."""
    return save_model(tmp_path_factory.mktemp("models") / "tiny", head_dim=64)


@pytest.mark.parametrize("how", HOWS)
def test_on_a_card(how: str, directory: Path, tmp_path: Path) -> None:
    torch.cuda.synchronize()  # this process has taken its own share before it looks
    shared_before, free_before = shared_memory(), torch.cuda.mem_get_info()[0]
    ended = run_to_its_end(directory, "cuda", tmp_path / "trace.jsonl", how)
    assert_told(ended, how)
    assert ended.trace.header.backend == "cuda, triton attention"
    assert_nothing_left(ended, shared_before)
    assert torch.cuda.mem_get_info()[0] >= free_before - TOLERANCE_BYTES
