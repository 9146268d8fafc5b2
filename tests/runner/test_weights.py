"""Every weight is loaded or the error says which was not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nanovllm.errors import ModelError
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.dummy_weights import fill_with_random_weights
from nanovllm.runner.weights import INDEX_FILE, SINGLE_FILE, checkpoint_tensors, load_weights
from tests.tiny_models import FAMILIES, make_model


def empty_model(directory: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    return Decoder(ModelSpec.from_directory(directory), max_position=8, dtype=dtype)


def save(directory: Path, tensors: dict[str, Tensor], source: Path) -> Path:
    (directory / "config.json").write_text((source / "config.json").read_text())
    save_file(tensors, directory / SINGLE_FILE)
    return directory


@pytest.fixture
def llama(tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model("llama")


@pytest.fixture
def tensors(llama: Path) -> dict[str, Tensor]:
    return load_file(llama / SINGLE_FILE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_weight_arrives(family: str, dtype: torch.dtype, tiny_model: Callable[[str], Path]) -> None:
    model = empty_model(tiny_model(family), dtype)
    for parameter in model.parameters():
        parameter.fill_(torch.nan)
    load_weights(model, tiny_model(family))
    loaded = {f"model.{name}".replace("model.lm_head", "lm_head"): t for name, t in checkpoint_tensors(model).items()}
    stored = load_file(tiny_model(family) / SINGLE_FILE)
    assert loaded.keys() == stored.keys()
    assert all(torch.equal(loaded[name], stored[name].to(dtype)) for name in stored)
    assert not any(parameter.isnan().any() for parameter in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_shards(family: str, tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    make_model(family).save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    sharded, single = empty_model(tmp_path), empty_model(tmp_path)
    load_weights(sharded, tmp_path)
    load_weights(single, tiny_model(family))
    assert all(torch.equal(a, b) for a, b in zip(sharded.parameters(), single.parameters(), strict=True))


def test_missing_shard_is_named(tmp_path: Path) -> None:
    make_model("llama").save_pretrained(tmp_path, max_shard_size="40KB")
    lost = sorted(tmp_path.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(ModelError) as caught:
        load_weights(empty_model(tmp_path), tmp_path)
    assert str(caught.value) == f"{lost}: does not exist but {INDEX_FILE} names it"


@pytest.mark.parametrize(
    "index",
    ["{", "[]", "[" * 10**5, '{"weights": {}}', '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'],
    ids=lambda index: index[:30],
)
def test_unreadable_index(index: str, llama: Path, tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_text(index)
    with pytest.raises(ModelError, match=f"{INDEX_FILE}: has no readable weight_map"):
        load_weights(empty_model(llama), tmp_path)


def test_no_weights_at_all(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"{SINGLE_FILE}: does not exist .*only safetensors weights can be loaded"):
        load_weights(empty_model(llama), tmp_path)


def test_truncated_file(llama: Path, tmp_path: Path) -> None:
    data = (llama / SINGLE_FILE).read_bytes()
    (tmp_path / SINGLE_FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=f"{SINGLE_FILE}: cannot be read as safetensors"):
        load_weights(empty_model(llama), tmp_path)


def test_missing_weights_are_listed(llama: Path, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    del tensors["model.layers.1.self_attn.k_proj.bias"], tensors["model.norm.weight"]
    save(tmp_path, tensors, llama)
    with pytest.raises(ModelError) as caught:
        load_weights(empty_model(llama), tmp_path)
    assert str(caught.value) == (f"{tmp_path}: weights are missing: layers.1.self_attn.k_proj.bias, norm.weight")


def test_long_lists_are_shortened(llama: Path, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    save(tmp_path, {name: t for name, t in tensors.items() if "layers.1." not in name}, llama)
    with pytest.raises(ModelError, match=r"weights are missing: (layers[^ ]*, ){7}layers[^ ]* and \d+ more$"):
        load_weights(empty_model(llama), tmp_path)


def test_left_over_weights_are_listed(llama: Path, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    tensors["model.layers.0.self_attn.q_norm.weight"] = torch.ones(8)
    save(tmp_path, tensors, llama)
    with pytest.raises(ModelError, match=r"no place for: model\.layers\.0\.self_attn\.q_norm\.weight$"):
        load_weights(empty_model(llama), tmp_path)


def test_other_shape(llama: Path, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    name = "model.layers.2.mlp.down_proj.weight"
    tensors[name] = tensors[name][:, :-1].contiguous()
    save(tmp_path, tensors, llama)
    with pytest.raises(ModelError, match=rf"{name} has shape \[48, 79\], but config.json calls for \[48, 80\]"):
        load_weights(empty_model(llama), tmp_path)


def test_tables_and_heads_that_follow_from_the_rest_are_no_surplus(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    source = tiny_model("llama-tied")
    tensors = load_file(source / SINGLE_FILE)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    load_weights(empty_model(source), save(tmp_path, tensors, source))


def test_checkpoints_of_the_bare_decoder_have_no_prefix(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    source = tiny_model("llama-tied")
    tensors = {name.removeprefix("model."): t for name, t in load_file(source / SINGLE_FILE).items()}
    load_weights(empty_model(source), save(tmp_path, tensors, source))


def test_index_agrees_with_what_transformers_writes(tmp_path: Path) -> None:
    make_model("qwen3").save_pretrained(tmp_path, max_shard_size="40KB")
    weight_map = json.loads((tmp_path / INDEX_FILE).read_text())["weight_map"]
    names = checkpoint_tensors(empty_model(tmp_path))
    assert {name.removeprefix("model.") for name in weight_map} == names.keys()


def test_random_weights_are_repeatable_and_everywhere(llama: Path) -> None:
    models = [empty_model(llama) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
        fill_with_random_weights(model, seed)
    first, same, other = (list(model.parameters()) for model in models)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not torch.equal(first[0], other[0])
    assert all(parameter.isfinite().all() for parameter in first)
