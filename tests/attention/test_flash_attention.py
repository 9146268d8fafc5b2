"""What is passed to flash-attn, by a fake of it that computes on a CPU; the real one is tested in ``tests/gpu``."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from hypothesis import given, settings, strategies as st

from nanovllm.attention.torch_attention import TorchAttention
from tests import flash_attn_fake
from tests.attention.ragged import NUM_LAYERS, Case, Shape, expected_of, make_step

CPU = torch.device("cpu")
shapes = st.builds(
    lambda kv, group, dim, block: Shape(kv * group, kv, dim, block),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([8, 16]),
    st.sampled_from([256, 512]),
)
cached_lens = st.one_of(st.integers(0, 700), st.sampled_from([0, 254, 255, 256, 257, 511, 512]))
decodes = st.lists(st.tuples(cached_lens, st.just(1)), min_size=1, max_size=6)
mixtures = st.lists(st.tuples(cached_lens, st.one_of(st.just(1), st.integers(1, 40))), min_size=1, max_size=6)
cases = st.builds(Case, shapes, st.one_of(decodes, mixtures), st.integers(0, 2**16))


@pytest.fixture(scope="module")
def fake() -> Iterator[ModuleType]:
    with flash_attn_fake.installed() as module:
        yield module


@settings(max_examples=100)
@given(case=cases, layer=st.integers(0, NUM_LAYERS - 1), num_splits=st.integers(0, 4))
def test_equals_the_reference(fake: ModuleType, case: Case, layer: int, num_splits: int) -> None:
    from nanovllm.attention.flash_attention import FlashAttention

    step, other = make_step(case, layer), make_step(case, layer)
    attention = FlashAttention(step.pool, num_splits=num_splits)
    output = attention.begin_step(step.inputs)(layer, step.query, step.key, step.value)
    # Finite although all other slots hold no number: nothing else was read.
    torch.testing.assert_close(output, expected_of(step), atol=1e-5, rtol=1e-4)
    reference = TorchAttention(other.pool).begin_step(other.inputs)(layer, other.query, other.key, other.value)
    torch.testing.assert_close(output, reference, atol=1e-5, rtol=1e-4)
    assert torch.equal(step.pool.nan_to_num(7.0), other.pool.nan_to_num(7.0)), "the pools differ"


def test_steps_of_single_tokens_take_the_call_that_cuts_contexts(
    fake: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nanovllm.attention import flash_attention

    calls = []
    real = flash_attention.flash_attn_with_kvcache
    monkeypatch.setattr(
        flash_attention,
        "flash_attn_with_kvcache",
        lambda *args, **options: (calls.append(options["num_splits"]), real(*args, **options))[1],
    )
    for lengths, num_calls in (([(300, 1), (0, 1)], 1), ([(300, 1), (0, 2)], 0)):
        step = make_step(Case(Shape(2, 1, 8, 256), lengths, seed=1), layer=0)
        attention = flash_attention.FlashAttention(step.pool, num_splits=3)
        attention.begin_step(step.inputs)(0, step.query, step.key, step.value)
        assert calls == [3] * num_calls
        calls.clear()


# ---- what an installed package can -----------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_build_that_works_has_no_obstacle(fake: ModuleType, head_dim: int, dtype: torch.dtype) -> None:
    from nanovllm.attention.flash_attention import find_obstacle

    assert find_obstacle(head_dim, dtype, CPU) is None


@pytest.mark.parametrize("broken", ["flash_attn_with_kvcache", "flash_attn_varlen_func"])
def test_a_build_without_the_kernels_is_found_out(
    fake: ModuleType, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nanovllm.attention import flash_attention

    right = getattr(flash_attention, broken)

    def reads_half_of_each_head(query: torch.Tensor, *args: torch.Tensor, **options: object) -> torch.Tensor:
        query = query.clone()
        query[..., query.shape[-1] // 2 :] = 0
        output: torch.Tensor = right(query, *args, **options)
        return output

    def refuses(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nException raised from ...")

    monkeypatch.setattr(flash_attention, broken, reads_half_of_each_head)
    assert flash_attention.find_obstacle(256, torch.float16, CPU) == (
        "the installed flash-attn computes heads of 256 float16 numbers wrongly: it was built without kernels for them"
    )
    monkeypatch.setattr(flash_attention, broken, refuses)
    assert flash_attention.find_obstacle(64, torch.bfloat16, CPU) == (
        "the installed flash-attn cannot compute heads of 64 bfloat16 numbers: "
        "FlashAttention only supports Ampere GPUs or newer."
    )
