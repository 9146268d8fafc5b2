"""What a reader of a page has at hand: the command, a directory, a model, and the files that examples start from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nanovllm.model_spec import PRESETS, ModelSpec
from tests.cli.conftest import RunCommand, run
from tests.cli.test_simulate import AZURE
from tests.docs.examples import ROOT, Reader
from tests.llm.conftest import model_path

__all__ = ["model_path", "run"]

BUILT_IN = "smollm2-135m"


@pytest.fixture
def reader(run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """In a directory of its own, with the files that examples take for granted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_text(AZURE)
    recorded_runs = Path("tests", "sim", "h200")
    shutil.copytree(ROOT / recorded_runs, tmp_path / recorded_runs)

    def run_words(*words: str) -> tuple[int, str]:
        outcome = run(*words)
        return outcome.code, outcome.out + outcome.err

    return Reader(run_words)


@pytest.fixture
def real_model() -> None:
    """The built-in model is there, or can be fetched."""
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("transformers", reason="needs transformers")
    from nanovllm.errors import ModelError
    from nanovllm.runner.builtin_models import build_builtin_model

    try:
        build_builtin_model(BUILT_IN)
    except ModelError as error:
        pytest.skip(str(error))


@pytest.fixture
def stand_in(model_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny random model in the place of the built-in one, for examples whose text does not matter."""
    from nanovllm.runner import builtin_models

    cache = tmp_path_factory.mktemp("cache")
    directory = cache / f"{BUILT_IN}-{builtin_models.BUILTIN_MODELS[BUILT_IN].sha256[:12]}"
    shutil.copytree(model_path, directory)
    config = json.loads((directory / "config.json").read_text())
    config["max_position_embeddings"] = PRESETS[BUILT_IN].max_position_embeddings
    (directory / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("NANOVLLM_CACHE", str(cache))
    monkeypatch.setitem(PRESETS, BUILT_IN, ModelSpec.from_directory(directory))
