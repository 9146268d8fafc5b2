"""A store that survives whatever happens to the process, and is of one sweep."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nanovllm.errors import ConfigError, FileError
from sim.sweeps import Row, Sweep, equal_rows, read_sweep, run_sweep
from tests.sim.sweeps.small import small_sweep

pytest.importorskip("joblib", reason="needs the extra sweep")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra sweep")
filelock = pytest.importorskip("filelock", reason="needs the extra sweep")

SCRIPT = """
import os, signal
from pathlib import Path
from sim.sweeps import run_sweep
from tests.sim.sweeps.small import small_sweep

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

{script}
"""


def killed(script: str) -> str:
    """What a process printed that kills itself, as kill -9 would, somewhere in ``script``."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(script=script)], stdout=subprocess.PIPE, text=True, check=False
    )
    assert result.returncode == -signal.SIGKILL
    return result.stdout


# ---- again ---------------------------------------------------------------------------------------------------


def test_a_sweep_that_was_killed_goes_on(expected: list[Row], tmp_path: Path) -> None:
    store = tmp_path / "store"
    on_row = "lambda row: rows.append(row) or (len(rows) == 4 and die())"
    killed(f"rows = []\nrun_sweep(small_sweep(), store={str(store)!r}, num_jobs=1, on_row={on_row})")
    assert len(list((store / "parts").iterdir())) == 4
    assert not (store / "results.parquet").exists()
    computed: list[Row] = []
    result = run_sweep(read_sweep(store), store=store, num_jobs=1, on_row=computed.append)
    assert (len(computed), result.num_reused) == (2, 4)
    assert equal_rows(result.rows, expected)
    assert sorted(path.name for path in store.iterdir()) == [".lock", "parts", "results.parquet", "sweep.json"]
    assert not list((store / "parts").iterdir())


@pytest.mark.parametrize("num_rows", range(1, 7))
def test_a_sweep_that_ends_after_any_row_and_goes_on_has_the_rows_of_one_that_did_not(
    num_rows: int, expected: list[Row], tmp_path: Path
) -> None:
    left = num_rows

    def end(_row: Row) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(small_sweep(), store=tmp_path, num_jobs=1, on_row=end)
    result = run_sweep(read_sweep(tmp_path), store=tmp_path, num_jobs=1)
    assert result.num_reused == num_rows
    assert equal_rows(result.rows, expected)
    stored = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert equal_rows(stored, expected)


HALF_WRITTEN = """
import pyarrow.parquet

def half(table, file, **_):
    file.write(b"PAR1")
    file.flush()
    die()

def break_it(row):
    pyarrow.parquet.write_table = half
"""
NOT_YET_NAMED = """
def break_it(row):
    Path.replace = die
"""


@pytest.mark.parametrize("script", [HALF_WRITTEN, NOT_YET_NAMED])
def test_a_part_that_was_not_finished_is_none(script: str, expected: list[Row], tmp_path: Path) -> None:
    store = tmp_path / "store"
    killed(f"{script}\nrun_sweep(small_sweep(), store={str(store)!r}, num_jobs=1, on_row=break_it)")
    assert len(list((store / "parts").iterdir())) == 2
    result = run_sweep(small_sweep(), store=store, num_jobs=1)
    assert result.num_reused == 1
    assert equal_rows(result.rows, expected)
    assert not list((store / "parts").iterdir())


def test_killed_between_the_results_and_the_end_of_the_parts(expected: list[Row], tmp_path: Path) -> None:
    store = tmp_path / "store"
    killed(f"Path.unlink = die\nrun_sweep(small_sweep(), store={str(store)!r}, num_jobs=1)")
    assert (store / "results.parquet").exists()
    assert len(list((store / "parts").iterdir())) == 6
    result = run_sweep(small_sweep(), store=store, num_jobs=1)
    assert result.num_reused == 6
    assert equal_rows(result.rows, expected)
    assert not list((store / "parts").iterdir())


def test_processes_end_with_the_one_that_asked_for_them(tmp_path: Path) -> None:
    children = "Path(f'/proc/self/task/{os.getpid()}/children').read_text()"
    if not (hasattr(os, "pidfd_open") and Path(f"/proc/self/task/{os.getpid()}/children").exists()):
        pytest.skip("only Linux tells who has which children")
    end = f"lambda row: print({children}, flush=True) or die()"
    told = killed(f"run_sweep(small_sweep(), store={str(tmp_path / 'store')!r}, num_jobs=2, on_row={end})")
    assert len(told.split()) >= 2
    for pid in map(int, told.split()):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([descriptor], [], [], 60)[0], f"process {pid} goes on"
        os.close(descriptor)


def test_a_part_that_cannot_be_read_is_computed_again(expected: list[Row], tmp_path: Path) -> None:
    store = tmp_path / "store"
    run_sweep(small_sweep(), store=store, num_jobs=1)
    (store / "results.parquet").unlink()
    (store / "parts" / f"{expected[0]['cell']}.parquet").write_bytes(b"")
    result = run_sweep(small_sweep(), store=store, num_jobs=1)
    assert result.num_reused == 0
    assert equal_rows(result.rows, expected)


def test_cells_that_failed_are_tried_again_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = small_sweep(tensor_parallel_size=[1, 3], policy=["mixed"], max_num_seqs=[4])
    assert len(run_sweep(sweep, store="store", num_jobs=1).failed) == 1
    assert run_sweep(sweep, store="store", num_jobs=1).num_reused == 2
    again = run_sweep(sweep, store="store", num_jobs=1, retry_failed=True)
    assert (again.num_reused, len(again.failed)) == (1, 1)
    assert len(parquet.read_table("store/results.parquet")) == 2


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = Sweep(settings={"workload": "load.jsonl"}, vary={"policy": ["prefill_first", "mixed"]})
    assert len(run_sweep(sweep, store="store", num_jobs=1).failed) == 2
    Path("load.jsonl").write_text('{"id": 0, "prompt_len": 8, "max_tokens": 4}\n')
    result = run_sweep(sweep, store="store", num_jobs=1)
    assert (result.num_reused, result.failed) == (0, [])
    assert parquet.read_table("store/results.parquet").to_pylist() == result.rows


# ---- more values ---------------------------------------------------------------------------------------------


def test_a_sweep_with_more_values_computes_only_the_new_cells(expected: list[Row], tmp_path: Path) -> None:
    run_sweep(small_sweep(max_num_seqs=[8, 2]), store=tmp_path, num_jobs=1)
    computed: list[Row] = []
    result = run_sweep(small_sweep(), store=tmp_path, num_jobs=1, on_row=computed.append)
    assert [row["max_num_seqs"] for row in computed] == [4, 4]
    assert result.num_reused == 4
    assert equal_rows(result.rows, expected)
    assert equal_rows(parquet.read_table(tmp_path / "results.parquet").to_pylist(), expected)
    assert read_sweep(tmp_path) == small_sweep()


def test_what_was_set_may_vary_later(expected: list[Row], tmp_path: Path) -> None:
    settings = {**small_sweep().settings, "policy": "mixed"}
    run_sweep(Sweep(settings=settings, vary={"max_num_seqs": [2, 4, 8]}), store=tmp_path, num_jobs=1)
    result = run_sweep(small_sweep(), store=tmp_path, num_jobs=1)
    assert result.num_reused == 3
    assert equal_rows(result.rows, expected)
    assert run_sweep(read_sweep(tmp_path), store=tmp_path, num_jobs=1).num_reused == 6


def test_a_sweep_with_more_values_may_be_killed(expected: list[Row], tmp_path: Path) -> None:
    run_sweep(small_sweep(max_num_seqs=[2]), store=tmp_path, num_jobs=1)
    script = f"run_sweep(small_sweep(), store={str(tmp_path)!r}, num_jobs=1, on_row=die)"
    killed(script)
    result = run_sweep(read_sweep(tmp_path), store=tmp_path, num_jobs=1)
    assert result.num_reused == 3
    assert equal_rows(result.rows, expected)


# ---- stores that are none ------------------------------------------------------------------------------------


def refusal(store: Path, **changes: Any) -> str:
    with pytest.raises(FileError) as caught:
        run_sweep(small_sweep(**changes), store=store, num_jobs=1)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_store_is_of_one_sweep(tmp_path: Path) -> None:
    store = tmp_path / "store"
    run_sweep(small_sweep(), store=store, num_jobs=1)
    assert "holds another sweep (rate is 100.0 there, 7.0 here)" in refusal(store, rate=7)
    assert "(max_num_seqs is 2,4,8 there, 2,4,9 here: all that are there are needed, and more may be added)" in refusal(
        store, max_num_seqs=[2, 4, 9]
    )
    assert "(seed is not set there, 3 here)" in refusal(store, seed=3)
    (store / "sweep.json").write_text("{}")
    assert "does not describe a sweep" in refusal(store)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "holds files, but no sweep" in refusal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert "cannot be written" in refusal(tmp_path / "notes.txt")


def test_a_manifest_of_something_else_keeps_everything_where_it_is(tmp_path: Path) -> None:
    files = {"sweep.json": '{"of": "another program"}', ".rules.json": "{}", ".cache.parquet": "PAR1"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert refusal(tmp_path).startswith(f"{tmp_path / 'sweep.json'}: does not describe a sweep")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_hidden_files_of_others_stay_in_a_store(tmp_path: Path) -> None:
    (tmp_path / ".rules.json").write_text("{}")
    for _ in range(2):
        run_sweep(small_sweep(), store=tmp_path, num_jobs=1)
    assert (tmp_path / ".rules.json").exists()


def test_a_manifest_with_an_unknown_setting_is_named(tmp_path: Path) -> None:
    run_sweep(small_sweep(), store=tmp_path, num_jobs=1)
    manifest = tmp_path / "sweep.json"
    manifest.write_text(manifest.read_text().replace('"rate"', '"speed"'))
    assert refusal(tmp_path).startswith(f"{manifest}: speed=100.0 is not allowed: there is no such setting")


def test_two_processes_do_not_write_to_one_store(tmp_path: Path) -> None:
    run_sweep(small_sweep(), store=tmp_path, num_jobs=1)
    with filelock.FileLock(tmp_path / ".lock"):
        result = subprocess.run(
            [sys.executable, "-m", "nanovllm.cli", "sweep", "--store", str(tmp_path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {tmp_path}: another sweep is writing to it")
    assert result.stderr.count("\n") == 1


def test_a_manifest_says_what_the_sweep_is(tmp_path: Path) -> None:
    run_sweep(small_sweep(), store=tmp_path, num_jobs=1)
    manifest = json.loads((tmp_path / "sweep.json").read_text())
    assert manifest["kind"] == "nanovllm sweep"
    assert manifest["vary"] == {"policy": ["prefill_first", "mixed"], "max_num_seqs": [2, 4, 8]}
    assert read_sweep(tmp_path) == small_sweep()
    with pytest.raises(FileError, match="cannot be read"):
        read_sweep(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"policy": ["mixed", "no_such_module:Own"]}, "module 'no_such_module' cannot be imported"),
        ({"policy": ["mixed", "json:JSONDecoder"]}, "a subclass of nanovllm.engine.scheduler.Scheduler is needed"),
        ({"router": "json:Router", "replicas": 2}, "module 'json' has no class 'Router'"),
    ],
)
def test_a_class_that_is_not_there_is_refused_before_the_first_cell_runs(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    rows: list[Row] = []
    with pytest.raises(ConfigError, match=problem):
        run_sweep(small_sweep(**changes), store=tmp_path / "store", num_jobs=1, on_row=rows.append)
    assert not rows
    assert not (tmp_path / "store").exists()
