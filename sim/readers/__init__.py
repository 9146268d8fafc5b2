"""Public traces as workloads, one module a format. All stream: a trace need not fit into memory.

Every reader takes ``start_s`` and ``end_s`` (only what came from so many seconds after the first request on, and before
so many), ``skip`` and ``limit`` (of these leave out so many, then give at most so many), ``rate_scale`` (2 lets the
requests come twice as fast) and ``max_tokens``. Traces tell how many tokens were generated. By default that
is each request's ``max_tokens``; with ``max_tokens=N`` the scheduler is told N of all of them, and the real length
stays hidden from it. The first request kept arrives at time 0; a request's id is its number in the trace. A part of a
workload file (``any_format``) is cut in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sim.readers.azure import read_azure
from sim.readers.mooncake import read_mooncake
from sim.readers.sharegpt import read_sharegpt
from sim.readers.slices import Slice
from sim.workload import WorkloadRequest

READERS: dict[str, Callable[..., Iterator[WorkloadRequest]]] = {
    "azure": read_azure,
    "mooncake": read_mooncake,
    "sharegpt": read_sharegpt,
}
"""The readers by the name of their format."""

__all__ = ["READERS", "Slice", "read_azure", "read_mooncake", "read_sharegpt"]
