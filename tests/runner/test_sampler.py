"""Draws have the right distribution, pass the right filters, and belong to their request alone."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from nanovllm.engine.sequence import Sequence
from nanovllm.runner.sampler import build_sampling_inputs, draw_keys, filter_threshold, gumbel_noise, sample
from nanovllm.sampling_params import SamplingParams

CPU = torch.device("cpu")


def sequence(num_tokens: int = 3, request_id: int | str = 0, **params: Any) -> Sequence:
    seq = Sequence([0], SamplingParams(**params), request_id)
    seq.num_tokens = num_tokens  # what the sampler looks at, without the tokens
    return seq


def draw(logits: Tensor, sequences: list[Sequence], engine_seed: int = 0) -> list[int]:
    return sample(logits, build_sampling_inputs(sequences, engine_seed, logits.shape[1], CPU)).tolist()


def random_logits(num_rows: int, vocab_size: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed))


# ---- filters -------------------------------------------------------------------------------------------------


def kept_by_reference(logits: list[float], params: SamplingParams) -> set[int]:
    """Temperature, top-k, top-p, min-p one after the other in plain Python, ties at an edge all kept."""
    scaled = [value / params.temperature for value in logits]
    kept = set(range(len(scaled)))
    if 0 < params.top_k < len(scaled):
        ranked = sorted(scaled, reverse=True)[: params.top_k]
        kept = {token for token in kept if scaled[token] >= ranked[-1]}
    else:
        ranked = sorted(scaled, reverse=True)
    weights = [math.exp(value - ranked[0]) for value in ranked]
    if params.top_p < 1:
        total = 0.0
        for value, weight in zip(ranked, weights, strict=True):
            if total / sum(weights) >= params.top_p:
                break
            total += weight
            edge = value
        kept = {token for token in kept if scaled[token] >= edge}
    return {token for token in kept if math.exp(scaled[token] - ranked[0]) >= params.min_p}


params_strategy = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    top_k=st.integers(-1, 12),
    top_p=st.sampled_from([0.01, 0.3, 0.55, 0.8, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.03, 0.3]),
)
# Few distinct values a good way apart: ties are common, and no sum of probabilities comes near a limit by chance.
logits_strategy = st.lists(st.integers(-6, 6), min_size=1, max_size=10).map(lambda row: [0.37 * v for v in row])


@given(st.lists(st.tuples(logits_strategy, params_strategy), min_size=1, max_size=5))
@settings(max_examples=300)
def test_filters_keep_what_a_plain_reference_keeps(rows: list[tuple[list[float], SamplingParams]]) -> None:
    vocab_size = max(len(logits) for logits, _ in rows)
    padded = torch.tensor([logits + [-40.0] * (vocab_size - len(logits)) for logits, _ in rows])
    sequences = [Sequence([0], params, index) for index, (_, params) in enumerate(rows)]
    inputs = build_sampling_inputs(sequences, 0, vocab_size, CPU)
    scaled = (padded - padded.amax(-1, keepdim=True)) / inputs.temperature[:, None]
    threshold = filter_threshold(scaled, inputs)
    for index, (_, params) in enumerate(rows):
        kept = (
            range(vocab_size) if threshold is None else (scaled[index] >= threshold[index]).nonzero().flatten().tolist()
        )
        assert set(kept) == kept_by_reference(padded[index].tolist(), params)


@pytest.mark.parametrize("temperature", [0.05, 1.0, 4.0])
def test_top_p_over_a_large_vocabulary(temperature: float) -> None:
    """Whether few tokens or thousands reach the sum, alone and beside another."""
    logits = random_logits(1, 5000)
    params = SamplingParams(temperature=temperature, top_p=0.9)
    sequences = [Sequence([0], params, 0), sequence(temperature=0.01, top_p=0.9)]
    expected = kept_by_reference(logits[0].tolist(), params)
    for rows in (1, 2):
        inputs = build_sampling_inputs(sequences[:rows], 0, 5000, CPU)
        scaled = (logits - logits.max()).expand(rows, -1) / inputs.temperature[:, None]
        threshold = filter_threshold(scaled, inputs)
        assert threshold is not None
        kept = (scaled[0] >= threshold[0]).nonzero().flatten().tolist()
        assert len(expected.symmetric_difference(kept)) <= 1  # the last one may be a matter of rounding


def test_a_draw_never_leaves_what_is_kept() -> None:
    logits = random_logits(1, 50)
    allowed = set(logits[0].topk(4).indices.tolist())
    drawn = {draw(logits, [sequence(n, top_k=4, temperature=3.0)])[0] for n in range(1, 300)}
    assert drawn == allowed


# ---- greedy --------------------------------------------------------------------------------------------------


def test_greedy_takes_the_largest_and_the_first_of_equals() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0], [5.0, 1.0, 1.0, 5.0]])
    assert draw(logits, [sequence(temperature=0), sequence(temperature=0)]) == [1, 0]


def test_greedy_and_drawn_rows_side_by_side() -> None:
    logits = random_logits(1, 64).repeat(3, 1)
    drawn = sequence(seed=5)
    greedy = int(logits[0].argmax())
    tokens = draw(logits, [sequence(temperature=0), drawn, sequence(temperature=0, top_k=1)])
    assert tokens == [greedy, draw(logits[:1], [drawn])[0], greedy]


@pytest.mark.parametrize("temperature", [1e-20, 1e-300])
def test_tiny_temperature_is_greedy(temperature: float) -> None:
    logits = random_logits(4, 1000)
    assert draw(logits, [sequence(n + 1, temperature=temperature) for n in range(4)]) == logits.argmax(-1).tolist()


# ---- distribution --------------------------------------------------------------------------------------------


def chi_square(counts: Counter[int], probabilities: list[float], num_draws: int) -> float:
    return sum((counts[token] - num_draws * p) ** 2 / (num_draws * p) for token, p in enumerate(probabilities))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 1.5, 0.2]])
    num_draws = 20_000
    sequences = [sequence(n + 1, temperature=temperature, seed=1) for n in range(num_draws)]
    counts = Counter(draw(logits.expand(num_draws, -1), sequences))
    probabilities = (logits[0] / temperature).softmax(-1).tolist()
    # 7 degrees of freedom: above 29.9 once in 10,000 runs; the draws are the same in every run.
    assert chi_square(counts, probabilities, num_draws) < 29.9


def test_requests_without_seed_draw_independently() -> None:
    num_draws = 20_000
    logits = torch.zeros(1, 8).expand(num_draws, -1)
    by_request = draw(logits, [sequence(request_id=index) for index in range(num_draws)])
    assert chi_square(Counter(by_request), [1 / 8] * 8, num_draws) < 29.9
    neighbours = Counter(8 * a + b for a, b in zip(by_request[::2], by_request[1::2], strict=True))
    # 63 degrees of freedom: above 118 once in 10,000 runs.
    assert chi_square(neighbours, [1 / 64] * 64, num_draws // 2) < 118


def test_noise_is_standard_gumbel() -> None:
    keys = torch.randint(-(2**31), 2**31, (40, 2), generator=torch.Generator().manual_seed(0)).int()
    noise = gumbel_noise(keys, 5000)
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.57722, abs=0.01)  # the Euler-Mascheroni constant
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.02)
    rows = torch.corrcoef(noise) - torch.eye(40)
    assert rows.abs().max() < 0.08
    assert torch.corrcoef(noise[:, :40].T).sub(torch.eye(40)).abs().max() < 0.75


def test_noise_is_the_documented_hash() -> None:
    """In numpy's unsigned numbers, so that every device and every kernel has one thing to agree with."""

    def fold(bits: np.ndarray, factor: int) -> np.ndarray:
        product = bits.astype(np.uint64) * np.uint64(factor)
        return (product >> np.uint64(32)).astype(np.uint32) ^ product.astype(np.uint32)

    keys = np.array([[3, 2**31 + 5], [2**32 - 1, 77]], dtype=np.uint32)
    bits = fold(np.arange(300, dtype=np.uint32) * np.uint32(0x9E3779B1) + keys[:, :1], 0xD2B74407) ^ keys[:, 1:]
    uniform = (fold(bits, 0xCA5A826B) | np.uint32(1)) / 2**32
    expected = -np.log(-np.log1p(-uniform))
    noise = gumbel_noise(torch.from_numpy(keys.view(np.int32)), 300)
    np.testing.assert_allclose(noise.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(gumbel_noise(torch.from_numpy(keys.view(np.int32)), 200, 100), noise[:, 100:])


def noise_over_positions(num_rows: int, num_token_ids: int) -> Tensor:
    """Of one request at places that follow each other, as uniform numbers: small ones win."""
    keys = torch.tensor([[123, -456]], dtype=torch.int32).expand(num_rows, -1)
    noise = gumbel_noise(draw_keys(keys, torch.arange(num_rows, dtype=torch.int32)), num_token_ids)
    return -torch.expm1(-(-noise.double()).exp())


def z_score(cells: Tensor, num_cells: int) -> float:
    """How far the counts of each cell are from those of chance, in standard deviations of their chi-square."""
    counts = torch.bincount(cells.flatten(), minlength=num_cells).double()
    mean = cells.numel() / num_cells
    return ((counts - mean).square().sum().item() / mean - (num_cells - 1)) / math.sqrt(2 * (num_cells - 1))


def test_noise_is_even_far_up_its_tail() -> None:
    """The tokens that win have noise that one in a vocabulary has: as often as it should be, and of all sizes."""
    uniform = noise_over_positions(32, 2**16)
    for digits in (4, 8, 12, 14):
        tail = uniform[uniform < 2.0**-digits]
        expected = uniform.numel() / 2**digits
        assert abs(len(tail) - expected) < 4 * math.sqrt(expected)
        assert abs(z_score((tail * 2.0 ** (digits + 4)).long().clamp(max=15), 16)) < 4


@pytest.mark.parametrize("axis", [0, 1], ids=["positions", "token ids"])
@pytest.mark.parametrize("distance", [1, 2, 3, 8, 16, 31])
def test_noise_knows_nothing_of_its_neighbours(axis: int, distance: int) -> None:
    cells = (noise_over_positions(64, 2**14) * 32).long().clamp(max=31)
    num_pairs = cells.shape[axis] - distance
    pairs = 32 * cells.narrow(axis, 0, num_pairs) + cells.narrow(axis, distance, num_pairs)
    assert abs(z_score(pairs, 32 * 32)) < 4


@pytest.mark.parametrize("shared", [0, 1])
def test_rows_that_share_half_a_key_have_noise_of_their_own(shared: int) -> None:
    keys = torch.randint(-(2**31), 2**31, (40, 2), generator=torch.Generator().manual_seed(2)).int()
    keys[:, shared] = 99
    correlations = torch.corrcoef(gumbel_noise(keys, 2**15)) - torch.eye(40)
    assert correlations.abs().max() < 0.05


def test_every_token_wins_as_often_as_others() -> None:
    winners = noise_over_positions(6400, 500).argmin(-1)
    assert abs(z_score(winners, 500)) < 4
    assert abs(z_score(winners[1:] // 50 * 10 + winners[:-1] // 50, 100)) < 4


# ---- whose draw it is ----------------------------------------------------------------------------------------


@given(st.permutations(range(6)), st.integers(0, 5))
def test_a_draw_does_not_depend_on_the_batch(order: list[int], alone: int) -> None:
    logits = random_logits(6, 200)
    params: list[dict[str, Any]] = [
        {"seed": 1},
        {"seed": 1, "top_k": 5},
        {"top_p": 0.4},
        {},
        {"temperature": 0},
        {"seed": 9, "min_p": 0.1, "temperature": 1.3},
    ]
    sequences = [sequence(index + 1, request_id=index, **each) for index, each in enumerate(params)]
    in_order = draw(logits, sequences)
    assert draw(logits[list(order)], [sequences[i] for i in order]) == [in_order[i] for i in order]
    assert draw(logits[alone : alone + 1], [sequences[alone]]) == [in_order[alone]]


def draws_over_time(engine_seed: int = 0, **options: Any) -> list[int]:
    sequences = [sequence(n, **options) for n in range(1, 41)]
    return draw(random_logits(1, 300).expand(40, -1), sequences, engine_seed)


def test_what_a_draw_depends_on() -> None:
    seeded = draws_over_time(seed=4)
    assert len(set(seeded)) > 5  # each position draws anew
    assert draws_over_time(seed=4, request_id="other", engine_seed=1) == seeded
    assert draws_over_time(seed=5) != seeded
    assert draws_over_time(seed=2**62) != draws_over_time(seed=2**63)

    unseeded = draws_over_time(request_id="a")
    assert draws_over_time(request_id="a") == unseeded
    assert draws_over_time(request_id="b") != unseeded
    assert draws_over_time(request_id="a", engine_seed=1) != unseeded
    assert draws_over_time(request_id=1) != draws_over_time(request_id="1")


def test_prompt_and_generated_tokens_count_alike() -> None:
    """What a preempted request recomputes is a prompt to it; its next draw is the same."""
    logits = random_logits(1, 300)
    params = SamplingParams(seed=4)
    grown = Sequence([1, 2, 3], params)
    grown.append_token(7)
    assert draw(logits, [grown]) == draw(logits, [Sequence([1, 2, 3, 7], params)])
