"""docs/reference/web-replay.md: its examples run, and its table of keys is the one of the page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from viz.web.scripts import source

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "web-replay.md").read_text(encoding="utf-8")
SHOWN = {" ": "Space", "ArrowRight": "→", "ArrowLeft": "←", "Escape": "Esc"}


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "examples.py").write_text("\n\n".join(examples), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path("examples.py")
    assert names["data"]["runs"][0]["problem"] is None
    preemptions = [kind for kind in names["data"]["runs"][0]["words"]["templates"] if "is preempted" in kind[0]]
    assert preemptions, "the example should show preemptions"
    assert (tmp_path / "run.html").stat().st_size < (tmp_path / "pair.html").stat().st_size


def test_the_table_lists_every_key() -> None:
    lists = re.findall(r"^    \[\[(.*?)\], ", source("keys.js"), re.MULTILINE)
    keys = {key for names in lists for key in re.findall(r'"(.*?)"', names)}
    table = PAGE[PAGE.index("| key |") : PAGE.index("The wheel zooms")]
    told = set(re.findall(r"`(.+?)`", table)) - {"Enter"}
    assert told == {SHOWN.get(key, key.upper() if len(key) == 1 else key) for key in keys}
