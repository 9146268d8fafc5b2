"""docs/reference/figures.md: its examples run, and its table lists every kind."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from viz.figures import KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "figures.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "examples.py").write_text("\n\n".join(examples), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path("examples.py")
    assert names["handover"].taken
    pictures = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".svg")}
    assert pictures == {"run.png", "timeline.svg", "blocks.png", "compare.png", "cliff.png"}


def test_the_table_lists_every_kind() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == KINDS
