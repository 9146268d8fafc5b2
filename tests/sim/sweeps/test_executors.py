"""The same rows wherever they are computed, and what is said where that is not possible."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nanovllm.errors import ConfigError, WorkerError
from sim.sweeps import LOCAL_CLUSTER, Row, Sweep, equal_rows, executors, run_sweep
from tests.sim.sweeps.small import small_sweep

pytest.importorskip("joblib", reason="needs the extra sweep")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra sweep")
pytest.importorskip("filelock", reason="needs the extra sweep")


def test_processes_give_equal_rows(expected: list[Row], tmp_path: Path) -> None:
    result = run_sweep(small_sweep(), store=tmp_path / "store", num_jobs=2)
    assert equal_rows(result.rows, expected)
    assert equal_rows(parquet.read_table(tmp_path / "store" / "results.parquet").to_pylist(), expected)
    assert result.table().column_names == list(expected[0])


def test_a_ray_cluster_gives_equal_rows(expected: list[Row], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra cluster")
    result = run_sweep(small_sweep(), store=tmp_path / "store", num_jobs=1, ray=LOCAL_CLUSTER)
    assert equal_rows(result.rows, expected)


def test_a_sweep_that_ends_early_leaves_no_task_on_a_cluster_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[str] = []
    ray = SimpleNamespace(
        remote=lambda function: SimpleNamespace(remote=lambda directory, cell: cell.key),
        cluster_resources=lambda: {"CPU": 2.0},
        wait=lambda tasks, num_returns: (tasks[:num_returns], tasks[num_returns:]),
        get=lambda tasks: [{"cell": key} for key in tasks],
        cancel=cancelled.append,
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    cells = small_sweep().cells()
    rows = executors._on_connected_ray(cells)
    assert next(rows) == {"cell": cells[0].key}
    rows.close()
    assert cancelled == [cell.key for cell in cells[1:4]]


def test_a_cluster_that_does_not_answer_is_named() -> None:
    pytest.importorskip("ray", reason="needs the extra cluster")
    with pytest.raises(ConfigError, match=r"ray='127.0.0.1:1' is not allowed: no cluster answers there"):
        run_sweep(small_sweep(), ray="127.0.0.1:1")


def test_where_something_else_than_ray_listens_is_one_line_within_seconds() -> None:
    pytest.importorskip("ray", reason="needs the extra cluster")
    words = ["sweep", "--set", "num_requests=1", "--ray"]
    quick = {"RAY_py_gcs_connect_timeout_s": "1", "RAY_gcs_rpc_server_connect_timeout_s": "1"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "nanovllm.cli", *words, address],
            env={**os.environ, **quick},
            capture_output=True,
            text=True,
            timeout=60,  # Ray alone would take longer
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("[")]  # Ray's own log
    assert len(errors) == 1
    assert errors[0].startswith("error: the Ray cluster cannot be reached, or was lost: Failed to connect")


@pytest.mark.parametrize("address", ["", "nonsense", "ray://", "http://127.0.0.1"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    pytest.importorskip("ray", reason="needs the extra cluster")
    with pytest.raises(ConfigError) as caught:
        run_sweep(small_sweep(), ray=address)
    assert str(caught.value).startswith(f"ray={address!r} is not allowed: HOST:PORT, auto or local")
    assert "\n" not in str(caught.value)


def test_processes_find_files_as_the_caller_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.jsonl").write_text('{"id": 0, "prompt_len": 8, "max_tokens": 4}\n')
    sweep = Sweep(settings={"workload": "load.jsonl"}, vary={"policy": ["prefill_first", "mixed"]})
    assert not run_sweep(sweep, num_jobs=2).failed


def test_a_process_that_is_killed_ends_the_sweep_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(executors, "_run_in", die)
    with pytest.raises(WorkerError, match="a process of the sweep was killed"):
        run_sweep(small_sweep(), store=tmp_path / "store", num_jobs=2)


def test_jobs_are_counted() -> None:
    with pytest.raises(ConfigError, match="jobs=0"):
        run_sweep(small_sweep(), num_jobs=0)
