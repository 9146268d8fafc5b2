"""Fused norms and activations equal the torch layers."""

from __future__ import annotations

import pytest
import torch

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DEVICE, DTYPES, assert_near, generator, randn

# isort: split
from nanovllm.layers.activation import silu_and_mul
from nanovllm.layers.norm import RMSNorm
from nanovllm.layers.triton.elementwise import rms_norm, silu_mul, take_rows


def make_norm(size: int, dtype: torch.dtype) -> RMSNorm:
    norm = RMSNorm(size, 1e-5, dtype=dtype).to(DEVICE)
    norm.weight.copy_(1 + randn(size, dtype=dtype, rng=generator(size), scale=0.2))
    return norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "size"), [(1, 16), (3, 100), (5, 1024), (2, 1025)])
def test_rms_norm(num_rows: int, size: int, dtype: torch.dtype) -> None:
    norm = make_norm(size, dtype)
    x = randn(num_rows, size + 8, dtype=dtype, rng=generator(1), scale=30)[:, :size]
    assert_near(rms_norm(x, norm.weight, norm.eps), norm(x).double(), factor=0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 100), (2, 1025)])
def test_silu_mul(num_rows: int, size: int, dtype: torch.dtype) -> None:
    gate_up = randn(num_rows, 2 * size, dtype=dtype, rng=generator(3), scale=8)
    assert_near(silu_mul(gate_up), silu_and_mul(gate_up.double()))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("size", [16, 100, 1025])
def test_take_rows(size: int, dtype: torch.dtype) -> None:
    table = randn(40, size, dtype=DTYPES[0], rng=generator(2))
    indices = torch.tensor([39, 0, 7, 7, 1], dtype=dtype, device=DEVICE)
    assert torch.equal(take_rows(table, indices), table[indices.long()])
