"""``nanovllm sweep --where``: some of the cells, tabled and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.cli.test_errors import assert_refused
from tests.cli.test_sweep import TWO_BY_TWO

pytest.importorskip("joblib", reason="needs the extra sweep")
pytest.importorskip("pyarrow", reason="needs the extra sweep")


def test_where_chooses_what_is_tabled(run: RunCommand, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run("sweep", *TWO_BY_TWO, "--vary", "tensor_parallel_size=1,3", "--store", store)
    outcome = run("sweep", "--store", store, "--where", "max-num-seqs=4", "--where", "tensor_parallel_size=1")
    assert (outcome.code, outcome.err) == (0, ""), "of cells that fail none was chosen"
    assert outcome.out.endswith("2 cells, 2 from the store\n")
    assert outcome.out.splitlines()[1].split("┃")[1].strip() == "policy"
    assert "max_num_seqs" not in outcome.out
    outcome = run("sweep", "--store", store, "--where", "policy=mixed", "--where", "policy=prefill_first", "--json")
    assert (outcome.code, len(outcome.out.splitlines())) == (1, 8)
    told = "policy=prefill_first,mixed; max_num_seqs=2,4; tensor_parallel_size=1,3"
    assert_refused(
        run("sweep", "--store", store, "--where", "policy=fifo"), f"'policy=fifo' is not allowed: cells have {told}"
    )
    assert_refused(run("sweep", "--store", store, "--where", "policy"), "where='policy' is not allowed: a name, =, and")


def test_where_leaves_two_settings_to_a_heat_map(run: RunCommand, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    words = [*TWO_BY_TWO, "--vary", "seed=1,2", "--heatmap", tmp_path / "map.svg"]
    assert_refused(run("sweep", *words), "two settings that vary, here are 3")
    assert run("sweep", *words, "--where", "seed=2").code == 0
    assert "<!-- max_num_seqs -->" in (tmp_path / "map.svg").read_text(encoding="utf-8")
