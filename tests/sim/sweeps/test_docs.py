"""The pages on sweeps tell of every setting and column, and the sweep that they show is one."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from nanovllm.config import Config
from sim.sweeps import read_sweep_file
from sim.sweeps.settings import TYPES
from sim.sweeps.table import columns_of
from tests.docs.examples import DOCS

REFERENCE = (DOCS / "reference" / "sweeps.md").read_text(encoding="utf-8")


def test_the_reference_names_every_setting() -> None:
    of_the_engine = {field.name for field in fields(Config)}
    assert [name for name in TYPES if name not in of_the_engine and f"`{name}`" not in REFERENCE] == []


def test_the_reference_names_every_column() -> None:
    latencies = re.compile(r"_(mean|p50|p90|p95|p99|max)_s$")
    names = {latencies.sub("", name) for name in columns_of([])}
    told = {latencies.sub("", name) for name in re.findall(r"`(\w+)`", REFERENCE)}
    assert sorted(names - told) == []


def test_the_sweep_that_is_shown_has_200_cells(tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "sweep.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "sweep.yaml").write_text(shown)
    assert len(read_sweep_file(tmp_path / "sweep.yaml").cells()) == 200
