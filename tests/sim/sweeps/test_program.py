"""Rows of a program that has changed are no answers of the one that there is now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sim.sweeps import run_sweep
from sim.sweeps.program import WITHOUT_PART, program_digest, sources_digest
from tests.sim.sweeps.small import small_sweep

A_CELL = """
import sys
from sim.sweeps import run_cell
from tests.sim.sweeps.small import small_sweep

settings = {"replicas": 2, "calibration": "h200-qwen3-0.6b", "kvcache_block_size": 256, "find_rate": 0.5, "slo_ttft": 1}
row = run_cell(small_sweep(policy=["mixed"], **settings).cells()[0])
assert row["error"] is None, row["error"]
print(*(name.replace(".", "/") for name in sys.modules), sep="\\n")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with three files, one of them in a package of its own."""
    root = tmp_path / "here" / "nanovllm"
    for name in ("__init__.py", "engine/__init__.py", "engine/scheduler.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name = {name!r}\n")
    return root


def test_every_source_file_counts(package: Path) -> None:
    digests = [sources_digest([package])]
    for path in sorted(package.rglob("*.py")):
        path.write_text(path.read_text() + "\n")
        digests.append(sources_digest([package]))
    (package / "engine" / "later.py").write_text("")
    digests.append(sources_digest([package]))
    (package / "engine" / "later.py").rename(package / "engine" / "renamed.py")
    digests.append(sources_digest([package]))
    (package / "engine" / "renamed.py").unlink()
    assert sources_digest([package]) == digests[3]
    assert len(set(digests)) == len(digests) == 6


def test_what_is_compiled_or_has_no_part_does_not_count_nor_where_it_is(package: Path) -> None:
    digest = sources_digest([package])
    for name in ("__pycache__/scheduler.pyc", "py.typed", "cli/main.py", "runner/model_runner.py"):
        path = package / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("anything")
    assert sources_digest([package]) == digest
    moved = package.parent.rename(package.parent.with_name("there")) / "nanovllm"
    assert sources_digest([moved]) == digest


def test_nothing_that_is_left_out_has_a_part_in_a_simulation() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", A_CELL], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    assert "sim/sweeps/row" in loaded
    assert [name for name in loaded if name.startswith(WITHOUT_PART)] == []


def test_a_row_of_another_program_is_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra sweep")
    sweep = small_sweep(policy=["mixed"])

    def num_reused() -> int:
        return run_sweep(sweep, store=tmp_path / "store", num_jobs=1).num_reused

    assert [num_reused(), num_reused()] == [0, 3]
    monkeypatch.setattr("sim.sweeps.cell_key.program_digest", lambda: "changed")
    assert [num_reused(), num_reused()] == [0, 3]
    monkeypatch.undo()
    assert num_reused() == 0, "what was computed in between took the place of what was there"


def test_the_sources_are_read_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = program_digest()
    monkeypatch.setattr("sim.sweeps.program.sources_digest", lambda packages: "changed")
    assert program_digest() == digest
