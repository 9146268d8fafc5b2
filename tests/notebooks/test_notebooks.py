"""Every notebook runs, asserts its numbers, and shows what is stored in it."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("ipykernel", reason="needs the extra notebooks")
pytest.importorskip("nbclient", reason="needs the extra notebooks")

from tests.notebooks.execution import NOTEBOOKS, code_cells, execute, read, texts

MAX_BYTES = 300_000
NEEDS_A_MODEL = "09_real_and_simulated.ipynb"
EVERY_NOTEBOOK = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@EVERY_NOTEBOOK
def test_it_shows_what_is_stored(path: Path) -> None:
    if path.name == NEEDS_A_MODEL:
        _require_the_model()
    assert texts(execute(path)) == texts(read(path)), f"`make notebooks` stores the outputs of {path.name} anew"


def _require_the_model() -> None:
    builtin_models = pytest.importorskip("nanovllm.runner.builtin_models", reason="needs torch")
    pytest.importorskip("transformers", reason="needs transformers")
    from nanovllm.errors import ModelError

    try:
        builtin_models.build_builtin_model("smollm2-135m")
    except ModelError as error:
        pytest.skip(str(error))


@EVERY_NOTEBOOK
def test_it_is_stored_with_its_outputs(path: Path) -> None:
    notebook = read(path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [number for number, _ in zip(count(1), cells, strict=False)]
    assert sum(bool(cell.outputs) for cell in cells) >= 4
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert "widgets" not in notebook.metadata
    assert path.stat().st_size < MAX_BYTES


@EVERY_NOTEBOOK
def test_it_asks_predicts_and_asserts(path: Path) -> None:
    notebook = read(path)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.match(r"# \d\d · .+\n\n\*\*.+\?\*\*", prose), "a title, and under it the question"
    assert "**Predict.**" in prose
    assert "**Look.**" in prose
    assert any(re.search(r"^assert ", cell.source, re.MULTILINE) for cell in code_cells(notebook))


@EVERY_NOTEBOOK
def test_its_cells_are_short(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert cell.source.count("\n") < 24, cell.source


def test_there_are_nine() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{number:02}" for number in range(1, 10)]
