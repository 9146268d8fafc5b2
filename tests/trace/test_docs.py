"""docs/reference/trace-format.md: its examples run, and its table is the one of events.py."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import get_args

import pytest

from nanovllm.trace.events import SCHEMA_VERSION, AnyEvent

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "trace-format.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "examples.py").write_text("\n\n".join(examples), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path("examples.py")
    assert names["metrics"].num_preemptions > 0, "the example should show preemptions"


def test_the_table_lists_every_event_with_its_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    told = {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}
    known = {kind.__struct_config__.tag: list(kind.__struct_fields__) for kind in get_args(AnyEvent)}
    assert told == known
    assert f"`schema` is {SCHEMA_VERSION}." in PAGE
