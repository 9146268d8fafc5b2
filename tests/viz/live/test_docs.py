"""The pictures of docs/reference/live-view.md are what its own commands show. (The commands run in tests/docs.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nanovllm.cli.main import main
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.text import to_text
from tests.docs.examples import DOCS, examples_of
from tests.viz.live.scenes import history_of, paused_at, screen_text
from viz import palette
from viz.live.keys import _NAMES

PAGE = DOCS / "reference" / "live-view.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_pictures_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line, _ in examples_of(PAGE)[0].commands():
        assert main(line.split()[1:]) == 0
    trace = read_trace("run.jsonl")
    screen, lines = re.findall(r"^```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    step = int(re.search(r"step (\d+) of", screen)[1])  # type: ignore[index]
    rows = screen_text(paused_at(history_of(trace.events), step))
    assert [row.rstrip() for row in rows] == screen.splitlines()
    assert lines in "\n".join(to_text(trace.events))


def test_glyphs_and_keys_are_those_of_the_palette_and_the_keyboard() -> None:
    shown = {palette.FINISHED: False, palette.HIT: True}  # who has finished is in no queue
    for look in (*palette.ACTIVITIES, *palette.PROGRESS, *palette.BLOCKS):
        assert (f"| `{look.glyph}` |" in TEXT) is shown.get(look, True), look.name
    keys = "".join(re.findall(r"^\| (.*?) \| ", TEXT[TEXT.index("## Keys") :], re.MULTILINE))
    letters = {name.decode() for name in _NAMES if name.isalpha() and name.islower()}
    assert all(f"`{name}`" in keys for name in letters)
