"""Which implementation of the attention is chosen where, and what is said about it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from nanovllm.config import Config
from nanovllm.errors import ConfigError
from nanovllm.model_spec import ModelSpec
from nanovllm.runner import steps
from nanovllm.runner.steps import Choice, choose_attention
from tests import flash_attn_fake

CARD, CPU = torch.device("cuda", 0), torch.device("cpu")
SPEC = ModelSpec.preset("qwen3-0.6b")
NO_TRITON, NO_FLASH = "the package triton is not installed", "the package flash-attn is not installed"
NO_GRAPHS = f"; decode steps are not recorded as CUDA graphs, since {NO_TRITON}"


def choose(
    attention: str, *, device: torch.device = CARD, head_dim: int = 128, dtype: str = "bfloat16", block_size: int = 256
) -> Choice:
    config = Config(attention=attention, kvcache_block_size=block_size)
    return choose_attention(config, replace(SPEC, head_dim=head_dim), device, getattr(torch, dtype))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The packages that there are; flash-attn computes on whatever card this is."""
    packages = {"triton", "flash_attn"}
    monkeypatch.setattr(steps, "find_spec", lambda name: importlib.util.find_spec("os") if name in packages else None)
    with flash_attn_fake.installed():
        from nanovllm.attention import flash_attention

        monkeypatch.setattr(flash_attention, "find_obstacle", lambda *_: None)
        yield packages


def test_the_fastest_that_is_possible(installed: set[str]) -> None:
    assert choose("auto") == Choice("triton", "it is the fastest on this card")
    kernels = "not triton, since its kernels are for"
    assert choose("auto", head_dim=80) == Choice("flash", f"{kernels} heads of 64, 96, 128, 256 numbers, not 80")
    no_blocks = f"{kernels} blocks of 16, 32, 64 ... tokens, not 768"
    assert choose("auto", block_size=768) == Choice("flash", no_blocks)
    installed.remove("triton")
    assert choose("auto") == Choice("flash", f"not triton, since {NO_TRITON}{NO_GRAPHS}")
    installed.clear()
    assert choose("auto") == Choice("torch", f"not triton, since {NO_TRITON}; not flash, since {NO_FLASH}")
    assert choose("auto", device=CPU) == Choice("torch", "the others need an NVIDIA GPU")


def test_what_is_asked_for(installed: set[str]) -> None:
    for attention in ("torch", "triton", "flash"):
        assert choose(attention) == Choice(attention, "it was asked for")
    installed.remove("triton")
    assert choose("flash") == Choice("flash", f"it was asked for{NO_GRAPHS}")


@pytest.mark.parametrize(
    ("attention", "options", "missing", "obstacle"),
    [
        ("triton", {"device": CPU}, "", "its kernels need an NVIDIA GPU"),
        ("triton", {}, "triton", NO_TRITON),
        ("triton", {"head_dim": 80}, "", "its kernels are for heads of 64, 96, 128, 256 numbers, not 80"),
        ("triton", {"block_size": 8}, "", "its kernels are for blocks of 16, 32, 64 ... tokens, not 8"),
        ("flash", {"device": CPU}, "", "flash-attn needs an NVIDIA GPU"),
        ("flash", {}, "flash_attn", NO_FLASH),
        ("flash", {"dtype": "float32"}, "", "flash-attn computes in bfloat16 and float16, not in float32"),
        ("flash", {"block_size": 16}, "", "flash-attn reads blocks of 256, 512, 768 ... tokens, not of 16"),
        ("flash", {"head_dim": 100}, "", "flash-attn takes heads of 8, 16, 24 ... 256 numbers, not of 100"),
        ("flash", {"head_dim": 264}, "", "flash-attn takes heads of 8, 16, 24 ... 256 numbers, not of 264"),
    ],
)
def test_what_stands_in_the_way(
    installed: set[str], attention: str, options: dict[str, object], missing: str, obstacle: str
) -> None:
    installed.discard(missing)
    with pytest.raises(ConfigError) as raised:
        choose(attention, **options)
    other = "flash" if attention == "triton" else "triton"
    neither = options in ({"device": CPU}, {"block_size": 8}, {"head_dim": 100}, {"head_dim": 264})
    allowed = "torch or auto" if neither else f"torch, {other} or auto"
    assert str(raised.value) == f"attention='{attention}' is not allowed: {allowed}, since {obstacle}"


def test_a_package_that_cannot_be_imported(installed: set[str]) -> None:
    with flash_attn_fake.installed() as fake:
        del fake.flash_attn_varlen_func
        with pytest.raises(ConfigError, match=r"since the package flash-attn cannot be imported \(cannot import name"):
            choose("flash")


def test_a_build_without_kernels_for_the_model(installed: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from nanovllm.attention import flash_attention

    monkeypatch.setattr(flash_attention, "find_obstacle", lambda *_: "it was built for another card")
    with pytest.raises(ConfigError, match="torch, triton or auto, since it was built for another card"):
        choose("flash")


def test_the_choice_is_logged_on_a_card(installed: set[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    choose("auto", device=CPU)
    assert not caplog.messages
    installed.remove("flash_attn")
    choose("auto", head_dim=80)
    (message,) = caplog.messages
    assert message.startswith("attention by torch: not triton, since its kernels are for heads of")
    assert message.endswith(f"not flash, since {NO_FLASH}")
