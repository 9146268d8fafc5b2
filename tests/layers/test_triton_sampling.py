"""The fused draw is the torch sampler's: the same hash, the same noise, the same token."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings, strategies as st
from torch import Tensor

# Before the kernels: where there is no Triton, it skips this module.
from tests.kernels import DEVICE, DTYPES, INTERPRETED, generator, randn

# isort: split
from nanovllm.layers.triton.launch_parameters import DrawParameters
from nanovllm.layers.triton.sampling import draw, gumbel_noise as fast_noise
from nanovllm.runner.sampler import draw_keys, gumbel_noise

SMALL = DrawParameters(tile=64, num_warps=1)


def make_keys(num_rows: int, seed: int) -> Tensor:
    """``[2, num_rows]``, apart as in a wider buffer."""
    bits = torch.randint(-(2**31), 2**31, (2, num_rows + 3), generator=generator(seed), dtype=torch.int64)
    return bits.to(torch.int32).to(DEVICE)[:, :num_rows]


def draw_with(logits: Tensor, temperatures: list[float], positions: list[int], *, seed: int = 0) -> list[int]:
    token_ids = torch.full((len(logits),), -1, dtype=torch.int32, device=DEVICE)
    columns = torch.tensor(temperatures, device=DEVICE), make_keys(len(logits), seed)
    places = torch.tensor(positions, dtype=torch.int32, device=DEVICE)
    return draw(logits, *columns, places, token_ids, parameters=SMALL).tolist()


def sums(logits: Tensor, temperatures: list[float], positions: list[int], *, seed: int = 0) -> Tensor:
    """What the sampler takes the largest of, in float64 as far as the noise allows."""
    places = torch.tensor(positions, dtype=torch.int32, device=DEVICE)
    noise = gumbel_noise(draw_keys(make_keys(len(logits), seed).T, places), logits.shape[1]).double()
    scale = torch.tensor(temperatures, device=DEVICE, dtype=torch.float64)[:, None]
    wide = logits.double()
    wide = wide - wide.amax(-1, keepdim=True)
    return torch.where(scale == 0, wide, wide / scale.clamp(min=1e-30) + noise)


def assert_drawn(token_ids: list[int], expected: Tensor) -> None:
    """Each token's sum is the largest, or so near to it that rounding decides."""
    drawn = expected.gather(1, torch.tensor(token_ids, device=DEVICE)[:, None])[:, 0]
    assert (expected.amax(-1) - drawn <= 1e-4).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab_size", [1, 2, 63, 64, 65, 1000])
def test_draws_as_the_torch_sampler_does(vocab_size: int, dtype: torch.dtype) -> None:
    logits = randn(5, vocab_size + 3, dtype=dtype, rng=generator(1), scale=3)[:, :vocab_size]
    temperatures, positions = [0.6, 1.0, 0.0, 5.0, 0.01], [7, 7, 100, 0, 4095]
    assert_drawn(draw_with(logits, temperatures, positions), sums(logits, temperatures, positions))


def test_a_uniform_row_is_drawn_by_its_noise_alone() -> None:
    logits = torch.zeros(16, 120, device=DEVICE)
    places = list(range(16))
    token_ids = draw_with(logits, [1.0] * 16, places)
    assert token_ids == sums(logits, [1.0] * 16, places).argmax(-1).tolist()
    assert len(set(token_ids)) > 8, "other rows and positions have other noise"


def test_greedy_takes_the_lowest_id_among_equals_over_tiles() -> None:
    logits = torch.zeros(3, 500, device=DEVICE)
    logits[0, [450, 130, 131]] = 2.0
    logits[2, 499] = 1e-30
    assert draw_with(logits, [0.0] * 3, [1, 2, 3]) == [130, 0, 499]


def test_a_tiny_temperature_is_as_good_as_greedy() -> None:
    logits = randn(2, 300, dtype=torch.float32, rng=generator(2))
    logits[1] -= 1e4
    assert draw_with(logits, [1e-30, 1e-42], [5, 6]) == logits.argmax(-1).tolist()


def test_what_is_no_number_is_never_drawn() -> None:
    logits = torch.full((3, 200), float("nan"), device=DEVICE)
    logits[0, 77] = -5.0
    logits[1] = float("-inf")
    token_ids = draw_with(logits, [0.0, 0.5, 0.5], [1, 2, 3])
    assert token_ids[0] == 77
    assert all(0 <= token_id < 200 for token_id in token_ids)


def test_rows_without_a_number_yield_tokens_of_the_vocabulary() -> None:
    logits = torch.full((40, 70), float("nan"), device=DEVICE)
    logits[::2] = float("-inf")
    token_ids = draw_with(logits, [0.0, 0.5, 1e-30, 10.0] * 10, list(range(40)))
    assert all(0 <= token_id < 70 for token_id in token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 0.7, 100.0])
def test_an_infinite_logit_is_drawn(temperature: float) -> None:
    logits = randn(2, 200, dtype=torch.float32, rng=generator(3))
    logits[0, 150] = float("inf")
    logits[1, [3, 150]] = torch.tensor([float("-inf"), float("inf")], device=DEVICE)
    assert draw_with(logits, [temperature] * 2, [1, 2]) == [150, 150]


@pytest.mark.parametrize("temperature", [1e30, 1e38, float("inf")])
def test_however_hot_what_has_no_chance_is_not_drawn(temperature: float) -> None:
    logits = torch.zeros(40, 70, device=DEVICE)
    logits[:, :35] = float("-inf")
    token_ids = draw_with(logits, [temperature] * 40, list(range(40)))
    assert all(35 <= token_id < 70 for token_id in token_ids)
    assert len(set(token_ids)) > 10


def test_positions_are_counted_up_where_there_is_a_sequence() -> None:
    logits = randn(4, 300, dtype=torch.float32, rng=generator(4))
    temperatures, keys = torch.tensor([0.0, 1.0, 1.0, 0.0], device=DEVICE), make_keys(4, 0)
    positions = torch.tensor([5, 0, 1, 4095], dtype=torch.int32, device=DEVICE)
    tokens = torch.zeros(2, 4, dtype=torch.int32, device=DEVICE)
    draw(logits, temperatures, keys, positions, tokens[0], parameters=SMALL)
    assert positions.tolist() == [5, 0, 1, 4095]
    draw(logits, temperatures, keys, positions, tokens[1], parameters=SMALL, advance=True)
    assert positions.tolist() == [6, 0, 2, 4096]
    assert torch.equal(tokens[0], tokens[1]), "drawn at the old positions"


@triton.jit
def noise_kernel(bits, out, size: tl.constexpr):
    place = tl.arange(0, size)
    tl.store(out + place, fast_noise(tl.load(bits + place).to(tl.uint32)))


def test_noise_is_exact_where_it_is_large() -> None:
    """Small, and where a series takes over from the logarithm, and up to where noise is least."""
    bits = torch.cat(
        (
            torch.arange(256),
            torch.logspace(1, 32, 3328, base=2, dtype=torch.float64).long() - 1,
            torch.linspace(0.01, 0.1, 512, dtype=torch.float64).mul(2**32).long(),
        )
    ).bitwise_or(1)
    out = torch.empty(len(bits), device=DEVICE)
    noise_kernel[(1,)](bits.to(torch.int32).to(DEVICE), out, size=len(bits))
    uniform = bits.double() / 2**32
    expected = -(-torch.log1p(-uniform)).log()
    error = ((out.double().cpu() - math.log2(math.log(2))) * math.log(2) - expected).abs()
    assert error[uniform < 0.99].max() < 5e-5
    assert error.max() < 0.5


def test_frequencies_follow_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0], device=DEVICE).expand(100, 3).contiguous()
    counts = torch.tensor(draw_with(logits, [1.0] * 100, list(range(100)))).bincount(minlength=3)
    expected = logits[0].cpu().softmax(-1) * 100
    assert (counts - expected).abs().max() < 3 * expected.max().sqrt()


@settings(max_examples=25 if INTERPRETED else 100)
@given(
    st.integers(1, 6),
    st.integers(1, 300),
    st.sampled_from([0.0, 1e-3, 0.3, 0.6, 1.0, 2.0, 100.0]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**16),
)
def test_any_batch(num_rows: int, vocab_size: int, temperature: float, position: int, seed: int) -> None:
    logits = randn(num_rows, vocab_size, dtype=torch.float32, rng=generator(seed), scale=5)
    temperatures, positions = [temperature] * num_rows, [position] * num_rows
    token_ids = draw_with(logits, temperatures, positions, seed=seed)
    assert_drawn(token_ids, sums(logits, temperatures, positions, seed=seed))
