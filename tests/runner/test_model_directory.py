"""Names and paths of models: what resolves, and what each mistake is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from nanovllm.errors import ModelError
from nanovllm.runner.model_directory import find_tokenizer, read_eos_token_ids, resolve_model


def test_directory(tiny_model: Callable[[str], Path]) -> None:
    assert resolve_model(str(tiny_model("llama"))) == tiny_model("llama")


@pytest.mark.parametrize("name", ["", "qwen3-0.6b", "./models/qwen", "/no/such/place", "a/b/c", "~/model", "owner/"])
def test_name_that_can_be_nothing(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(name)
    assert str(caught.value) == (
        f"model {name!r} does not exist: a directory, a name on the Hugging Face Hub such as Qwen/Qwen3-0.6B, or one "
        "of smollm2-135m"
    )


def test_hub_name(monkeypatch: pytest.MonkeyPatch, tiny_model: Callable[[str], Path]) -> None:
    asked = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tiny_model("llama"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve_model("owner/model") == tiny_model("llama")
    assert asked[0][0] == "owner/model"
    assert "*.safetensors" in asked[0][1]


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        raise LocalEntryNotFoundError("no connection\nand much more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ModelError) as caught:
        resolve_model("owner/model")
    assert str(caught.value).startswith(
        "model 'owner/model' is no directory and could not be fetched from the Hugging Face Hub (no connection): "
    )


def test_what_is_missing_in_a_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config.json: does not exist"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"model.safetensors: does not exist"):
        resolve_model(str(tmp_path))
    with pytest.raises(ModelError, match=r"there is no tokenizer: one of tokenizer.json, "):
        find_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer.json"


@pytest.mark.parametrize(
    ("generation_config", "config", "expected"),
    [
        ({"eos_token_id": [7, 8]}, {"eos_token_id": 3}, {7, 8}),
        ({"eos_token_id": 7}, {}, {7}),
        ({}, {"eos_token_id": 3}, {3}),
        (None, {"eos_token_id": [3, 4]}, {3, 4}),
        (None, {"eos_token_id": None}, set()),
    ],
)
def test_eos_token_ids(
    generation_config: dict[str, object] | None, config: dict[str, object], expected: set[int], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation_config is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation_config))
    assert read_eos_token_ids(tmp_path) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "[" * 10**5, '{"eos_token_id": "</s>"}', '{"eos_token_id": [-1]}'),
        *('{"eos_token_id": true}', '{"eos_token_id": 4294967296}', '{"eos_token_id": [[1]]}'),
    ],
    ids=lambda text: text[:30],
)
def test_wrong_generation_config(text: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(ModelError, match=r"generation_config.json: "):
        read_eos_token_ids(tmp_path)
