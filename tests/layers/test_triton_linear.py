"""Fused linear maps equal the layers one after the other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DTYPES, INTERPRETED, assert_near, generator, randn

# isort: split
import triton.language as tl

from nanovllm.layers.triton import fragments
from nanovllm.layers.triton.launch_parameters import GemvParameters, RowsParameters
from nanovllm.layers.triton.linear import fused_linear, fused_linear_before_norm

EPS = 1e-5
GEMV = GemvParameters(cols=16, num_warps=4)
ROWS = RowsParameters(cols=16, slices=2, at_once=2)


def check(
    num_rows: int,
    out_size: int,
    in_size: int,
    dtype: torch.dtype,
    *,
    bias: bool = False,
    norm: bool = False,
    is_gated: bool = False,
    residual: bool = False,
    rows: RowsParameters | None = ROWS,
    gemv: GemvParameters | None = GEMV,
    apart: int = 0,
) -> None:
    rng = generator(out_size * 1000 + in_size)
    total = out_size * (1 + is_gated)
    x = randn(num_rows, in_size + apart, dtype=dtype, rng=rng)[:, :in_size]
    weight = randn(total, in_size, dtype=dtype, rng=rng, scale=in_size**-0.5)
    bias_values = randn(total, dtype=dtype, rng=rng) if bias else None
    norm_values = 1 + randn(in_size, dtype=dtype, rng=rng, scale=0.2) if norm else None
    residual_values = randn(num_rows, out_size, dtype=dtype, rng=rng) if residual else None
    out = fused_linear(
        x,
        weight,
        bias_values,
        norm=norm_values,
        eps=EPS,
        is_gated=is_gated,
        residual=residual_values,
        gemv_parameters=gemv,
        rows_parameters=rows,
    )
    expected = x.double()
    if norm_values is not None:
        expected = expected * torch.rsqrt(expected.square().mean(-1, keepdim=True) + EPS) * norm_values.double()
    expected = expected @ weight.double().T
    if bias_values is not None:
        expected = expected + bias_values.double()
    if is_gated:
        gate, up = expected.chunk(2, dim=-1)
        expected = torch.nn.functional.silu(gate) * up
    if residual_values is not None:
        expected = expected + residual_values.double()
    assert_near(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows", [1, 2, 5, 16])
@pytest.mark.parametrize(
    ("norm", "is_gated", "residual"), [(True, False, False), (False, False, True), (True, True, True)]
)
def test_the_maps_of_a_decoder(num_rows: int, norm: bool, is_gated: bool, residual: bool, dtype: torch.dtype) -> None:
    check(num_rows, 48, 128, dtype, norm=norm, is_gated=is_gated, residual=residual)


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("is_gated", [False, True])
def test_bias(num_rows: int, is_gated: bool) -> None:
    check(num_rows, 32, 64, torch.float32, bias=True, is_gated=is_gated, residual=True)


@pytest.mark.parametrize("num_rows", [1, 7, 17, 32])
@pytest.mark.parametrize(("out_size", "in_size"), [(7, 40), (33, 100), (48, 136)])
def test_sizes_that_no_tile_divides(num_rows: int, out_size: int, in_size: int) -> None:
    check(num_rows, out_size, in_size, DTYPES[1], norm=True, is_gated=True, apart=8)


@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize(("out_size", "in_size"), [(256, 1024), (64, 3072), (256, 896), (4096, 64), (2048, 2080)])
def test_the_default_parameters(num_rows: int, out_size: int, in_size: int, is_gated: bool) -> None:
    check(num_rows, out_size, in_size, DTYPES[-1], norm=True, is_gated=is_gated, rows=None, gemv=None)


@pytest.mark.skipif(not INTERPRETED, reason="a card has one version of Triton")
@pytest.mark.parametrize("run", [2, 4])
def test_in_whatever_runs_threads_hold_the_depth(run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "_RUN", tl.constexpr(run))
    check(20, 40, 200, torch.float32, norm=True, is_gated=True, rows=ROWS)


def test_a_norm_of_large_numbers_does_not_overflow_float16() -> None:
    rng = generator(0)
    x = randn(2, 64, dtype=torch.float32, rng=rng, scale=10_000).half()
    weight = randn(16, 64, dtype=torch.float16, rng=rng)
    norm = torch.full_like(x[0], 8.0)
    out = fused_linear(x, weight, norm=norm, eps=EPS, rows_parameters=ROWS)
    wide = x.double()
    expected = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True)) * 8 @ weight.double().T
    assert_near(out, expected)


@settings(max_examples=25)  # on a card, each is compiled
@given(
    st.integers(1, 32),
    st.integers(1, 40),
    st.integers(1, 300),
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    st.builds(
        RowsParameters, cols=st.sampled_from([8, 16, 32]), slices=st.sampled_from([1, 2, 4]), at_once=st.integers(1, 4)
    ),
)
def test_any_sizes(
    num_rows: int, out_size: int, in_size: int, options: tuple[bool, bool, bool, bool], rows: RowsParameters
) -> None:
    bias, norm, is_gated, residual = options
    check(
        num_rows,
        out_size,
        in_size,
        torch.float32,
        bias=bias,
        norm=norm,
        is_gated=is_gated,
        residual=residual,
        rows=rows,
    )


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not torch.float16])
@given(
    num_rows=st.integers(2, 32),
    widths=st.tuples(*[st.sampled_from([32, 64, 96, 200])] * 3),
    bias=st.booleans(),
    is_gated=st.booleans(),
    rows=st.sampled_from([ROWS, None]),
)
@settings(max_examples=15)
def test_a_norm_between_two_products(
    dtype: torch.dtype,
    num_rows: int,
    widths: tuple[int, int, int],
    bias: bool,
    is_gated: bool,
    rows: RowsParameters | None,
) -> None:
    """It begins in the first and ends in the second, and no launch is between them."""
    in_size, size, out_size = widths
    rng = generator(num_rows)
    x, residual = randn(num_rows, in_size, dtype=dtype, rng=rng), randn(num_rows, size, dtype=dtype, rng=rng)
    first = randn(size, in_size, dtype=dtype, rng=rng, scale=in_size**-0.5)
    second = randn(out_size * (1 + is_gated), size, dtype=dtype, rng=rng, scale=size**-0.5)
    norm = 1 + randn(size, dtype=dtype, rng=rng, scale=0.2)
    first_bias = randn(size, dtype=dtype, rng=rng) if bias else None
    second_bias = randn(len(second), dtype=dtype, rng=rng) if bias else None
    hidden, weighted = fused_linear_before_norm(x, first, first_bias, residual, norm, rows_parameters=rows)
    plain = fused_linear(x, first, first_bias, residual=residual, rows_parameters=rows)
    assert torch.equal(hidden, plain)
    out = fused_linear(weighted, second, second_bias, eps=EPS, is_gated=is_gated, rows_parameters=rows)
    wide = hidden.double()
    expected = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * norm.double() @ second.double().T
    if second_bias is not None:
        expected = expected + second_bias.double()
    if is_gated:
        gate, up = expected.chunk(2, dim=-1)
        expected = torch.nn.functional.silu(gate) * up
    assert_near(out, expected)
