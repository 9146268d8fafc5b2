"""Results that are damaged, or of something else: named in one line, or as good as not there, never other figures."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.checks import MAX_SEED
from nanovllm.errors import FileError
from sim.sweeps import Row, equal_rows, run_sweep
from sim.sweeps.store import open_store
from tests.sim.sweeps.small import small_sweep
from tests.sim.sweeps.test_run_sweep import refusal

pytest.importorskip("filelock", reason="needs the extra sweep")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra sweep")


def rows_of(store: Path) -> list[Row]:
    return run_sweep(small_sweep(), store=store, num_jobs=1).rows


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file that holds the rows of the small sweep."""
    store = tmp_path_factory.mktemp("store")
    run_sweep(small_sweep(), store=store, num_jobs=1)
    return (store / "results.parquet").read_bytes()


def store_with(results: bytes, path: Path) -> Path:
    """A store of the small sweep that holds these results."""
    with open_store(path, small_sweep()):
        (path / "results.parquet").write_bytes(results)
    return path


def test_damaged_results_are_named_or_read_as_they_were(
    results: bytes, expected: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_with(b"PAR1", tmp_path_factory.mktemp("store"))
    assert "results.parquet: is no Parquet file that can be read" in refusal(store)

    @given(position=st.integers(0, len(results) - 1), bit=st.integers(0, 7), is_cut=st.booleans())
    @settings(max_examples=150, deadline=None)
    def damage(position: int, bit: int, is_cut: bool) -> None:
        damaged = bytearray(results[:position] if is_cut else results)
        if not is_cut:
            damaged[position] ^= 1 << bit
        (store / "results.parquet").write_bytes(damaged)
        try:
            assert equal_rows(rows_of(store), expected)
        except FileError:
            assert refusal(store).startswith(f"{store / 'results.parquet'}: ")

    damage()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda table: table.select(["policy"]), "holds no rows of a sweep: the column cell is missing"),
        (lambda table: table.drop_columns(["hit_rate"]), "the column hit_rate is missing, not double"),
        (lambda table: table.drop_columns(["error"]), "the column error is missing, not string"),
        (
            lambda table: table.set_column(1, "policy", [list(range(len(table)))]),
            "the column policy is int64, not string",
        ),
    ],
)
def test_other_columns_are_no_results(change: Callable[[Any], Any], part: str, results: bytes, tmp_path: Path) -> None:
    table = change(parquet.read_table(io.BytesIO(results)))
    store = store_with(results, tmp_path)
    parquet.write_table(table, store / "results.parquet")
    assert part in refusal(store)
    # as a part it counts as not there
    parquet.write_table(table, store / "parts" / "0123456789abcdef.parquet")
    (store / "results.parquet").unlink()
    assert run_sweep(small_sweep(), store=store, num_jobs=1).num_reused == 0


def test_a_part_that_is_damaged_meanwhile_is_in_the_results(expected: list[Row], tmp_path: Path) -> None:
    def damage(row: Row) -> None:
        (tmp_path / "parts" / f"{row['cell']}.parquet").write_bytes(b"PAR1")

    run_sweep(small_sweep(), store=tmp_path, num_jobs=1, on_row=damage)
    assert equal_rows(parquet.read_table(tmp_path / "results.parquet").to_pylist(), expected)


def test_the_largest_seed_is_stored(tmp_path: Path) -> None:
    sweep = small_sweep(seed=[0, MAX_SEED], policy=["mixed"], max_num_seqs=[4])
    first = run_sweep(sweep, store=tmp_path, num_jobs=1)
    again = run_sweep(sweep, store=tmp_path, num_jobs=1)
    assert [row["seed"] for row in again.rows] == [0, MAX_SEED]
    assert (again.num_reused, again.rows) == (2, first.rows)
