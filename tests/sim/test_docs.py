"""The examples of the simulator's pages run, in the order of the page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["concepts/simulator.md", "reference/workloads.md"])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(examples) >= 3
    (tmp_path / "examples.py").write_text("\n\n".join(examples), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("examples.py")


def test_the_format_table_names_every_field() -> None:
    from sim.workload.files import FIELDS

    table = (DOCS / "reference" / "workloads.md").read_text(encoding="utf-8")
    assert [field for field in FIELDS if f"`{field}`" not in table] == []
