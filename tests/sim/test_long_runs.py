"""Runs may be as long as one likes: memory stays, and time grows as they do."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from nanovllm.config import POLICIES, Config
from nanovllm.trace.files.compact import files
from nanovllm.trace.observer import RunObserver
from sim.generators import independent_requests, poisson, uniform
from sim.simulation import simulate
from sim.workload import WorkloadRequest


def load(num_requests: int) -> Iterator[WorkloadRequest]:
    return independent_requests(
        num_requests, prompt_len=uniform(16, 64), output_len=uniform(4, 12), arrivals=poisson(1000)
    )


def run(requests: Iterator[WorkloadRequest], trace: Path, policy: str = "mixed") -> int:
    config = Config(policy=policy, kvcache_block_size=16, num_kvcache_blocks=400)
    with RunObserver(trace) as observer:
        simulate(config, requests, record=False, listeners=[observer.take])
    return observer.metrics().num_completed


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_ended_leaves_nothing_behind(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_EVENTS", 1000)
    num_objects: list[int] = []

    def watched() -> Iterator[WorkloadRequest]:
        for index, request in enumerate(load(3_001)):
            if index % 1_000 == 0:
                gc.collect()
                num_objects.append(sys.getallocatedblocks())
            yield request

    assert run(watched(), tmp_path / "run.nvtrace", policy) == 3_001
    # A request consists of some dozen objects; what is kept of all are distinct latencies, no more than so many.
    assert num_objects[3] - num_objects[1] < 2_000 * 5


def test_each_request_takes_the_same_work_in_longer_runs(tmp_path: Path) -> None:
    num_calls: Counter[int] = Counter()
    for num_requests in (500, 2_000):

        def count(frame: FrameType, event: str, argument: object, run: int = num_requests) -> None:
            num_calls[run] += event in ("call", "c_call")

        requests = load(num_requests)
        sys.setprofile(count)
        try:
            run(requests, tmp_path / "run.nvtrace")
        finally:
            sys.setprofile(None)
    assert num_calls[2_000] / 2_000 == pytest.approx(num_calls[500] / 500, rel=0.1)
