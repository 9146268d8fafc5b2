"""Where the cells of a sweep are computed: here, in processes of this machine, or on the machines of a Ray cluster.

Each function yields rows as they come, in any order. Closing it before the last ends everything that it started.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nanovllm.errors import ConfigError, WorkerError
from sim.interrupts import end_with, starting_processes
from sim.sweeps.row import Row, run_cell
from sim.sweeps.sweep import Cell

LOCAL_CLUSTER = "local"
"""The address of a Ray cluster that is made on this machine, for the one sweep."""
_PATIENCE_S = 5
"""For a cluster that ought to be there already."""
_RAY_S_PATIENCE = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_py_gcs_connect_timeout_s": str(_PATIENCE_S)}
"""The same for Ray, which reads it when it is imported: by itself, it asks whatever listens there again and again."""


def in_this_process(cells: Sequence[Cell]) -> Generator[Row]:
    """One after the other."""
    for cell in cells:
        yield run_cell(cell)


def in_processes(cells: Sequence[Cell], num_jobs: int) -> Generator[Row]:
    """In ``num_jobs`` processes at a time, through joblib, which keeps them for some minutes for the next sweep. Raises
    ``WorkerError`` if one of them is killed."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    directory = str(Path.cwd())
    with parallel_config("loky", n_jobs=num_jobs, initializer=end_with, initargs=(os.getpid(),)):
        compute = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        with starting_processes():
            rows = compute(delayed(_run_in)(directory, cell) for cell in cells)
        try:
            while (row := _quietly(next, rows, None)) is not None:
                yield row
        except TerminatedWorkerError:
            raise WorkerError(
                "a process of the sweep was killed, for want of memory perhaps: fewer jobs need less"
            ) from None
        finally:
            _quietly(rows.close)


def _quietly(call: Callable[..., Any], *args: object) -> Any:
    """Without joblib's warning to those who end a sweep early: it says that rows are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args)


def on_ray(cells: Sequence[Cell], address: str | None, num_jobs: int | None = None) -> Generator[Row]:
    """On the Ray cluster at ``address``; None: on one that is made on this machine, with ``num_jobs`` processors.

    The machines need this package in the same version, and the files that cells read under the same paths. Raises
    ``ConfigError`` if it is no address or nobody answers there, ``WorkerError`` if the cluster is lost.
    """
    if address is not None:
        for name, value in _RAY_S_PATIENCE.items():
            os.environ.setdefault(name, value)
    import ray
    from ray.exceptions import RayError

    is_ours = not ray.is_initialized()
    try:
        if is_ours:
            _connect(address, num_jobs)
        yield from _on_connected_ray(cells)
    except (RayError, ConnectionError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise WorkerError(f"the Ray cluster cannot be reached, or was lost: {reason}") from None
    finally:
        if is_ours:
            ray.shutdown()


def _connect(address: str | None, num_jobs: int | None) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody has been asked whether figures may be sent
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    on_termination = signal.getsignal(signal.SIGTERM)
    try:
        if address is None:
            ray.init(address="local", num_cpus=num_jobs, include_dashboard=False, **quiet)
        else:
            _check_answers(address)
            ray.init(address=address, **quiet)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError("ray", address, f"HOST:PORT, auto or {LOCAL_CLUSTER} ({reason})") from None
    finally:
        if on_termination is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_termination)  # Ray's own would end the process with a stack of its threads


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes. Raises ``ConfigError``."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
        except (OSError, OverflowError) as error:
            raise ConfigError("ray", address, f"no cluster answers there ({error})") from None


def _on_connected_ray(cells: Sequence[Cell]) -> Generator[Row]:
    """No more tasks than keep the cluster busy are handed over at a time, however many cells there are."""
    import ray

    remote, directory = ray.remote(_run_in), str(Path.cwd())
    resources: dict[str, float] = ray.cluster_resources()
    most_running = 2 * max(1, int(resources.get("CPU", 1)))
    waiting, running = deque(cells), list[Any]()
    try:
        while waiting or running:
            while waiting and len(running) < most_running:
                running.append(remote.remote(directory, waiting.popleft()))
            finished, running = ray.wait(running, num_returns=1)
            yield from ray.get(finished)
    finally:
        for task in running:  # the cluster need not end with us
            ray.cancel(task)


def _run_in(directory: str, cell: Cell) -> Row:
    """A cell names files as the process that asked for it would, if this machine has its directory."""
    with suppress(FileNotFoundError):
        os.chdir(directory)
    return run_cell(cell)
