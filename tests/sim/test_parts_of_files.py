"""A part of a file of requests is the same part, whatever form the file has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import ConfigError, WorkloadError
from sim.readers import READERS
from sim.readers.any_format import Reading
from sim.workload import WorkloadRequest, write_workload
from tests.sim.test_readers import MOONCAKE, json_file


def test_any_file_can_be_cut(tmp_path: Path) -> None:
    load = [WorkloadRequest(id=n, prompt_len=5, max_tokens=2, arrival=float(n)) for n in range(6)]
    path = tmp_path / "load.jsonl"
    write_workload(path, load)
    with pytest.raises(WorkloadError, match=r"load\.jsonl: holds no request in the part that is asked for"):
        list(Reading(start_s=6).read(path))
    options: dict[str, Any] = {"start_s": 2, "end_s": 5, "rate_scale": 2.0, "skip": 1}
    assert [(request.id, request.arrival) for request in Reading(**options).read(path)] == [(3, 0.0), (4, 0.5)]
    assert list(Reading().read(path)) == load
    path = json_file(tmp_path, {**MOONCAKE, "timestamp": 0}, {**MOONCAKE, "timestamp": 3000})
    first, second = ([request.prompt for request in Reading(trace_seed=seed).read(path)] for seed in (0, 1))
    assert first != second
    assert [request.id for request in Reading(start_s=1).read(path)] == [1]
    with pytest.raises(WorkloadError, match=r"trace\.jsonl: holds no request in the part that is asked for"):
        list(Reading(skip=2).read(path))
    write_workload(path, [WorkloadRequest(id=0, prompt_len=5, max_tokens=2, arrival_step=3)])
    for name, allowed in (("start_s", 1.0), ("end_s", 9.0)):
        with pytest.raises(ConfigError, match=f"{name}={allowed} is not allowed: only for arrivals in seconds"):
            Reading(**{name: allowed}).read(path)


TRACED = st.tuples(st.integers(0, 5000), st.integers(1, 40), st.integers(1, 9))
"""Milliseconds since the one before, tokens of the prompt, tokens of the answer."""


def write_traced(directory: Path, name: str, rows: list[tuple[int, int, int]]) -> Path:
    """A public trace of the format ``name``."""
    times_ms = [1_000_000 + time_ms for time_ms in accumulate(gap_ms for gap_ms, *_ in rows)]
    if name == "azure":
        began = datetime(2023, 11, 16, 18, 0)
        lines = [
            f"{began + timedelta(milliseconds=t)},{row[1]},{row[2]}" for t, row in zip(times_ms, rows, strict=True)
        ]
        path = directory / "trace.csv"
        path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
        return path
    made: dict[str, Callable[[int, int, int], dict[str, Any]]] = {
        "mooncake": lambda t, prompt, answer: {
            "timestamp": t,
            "input_length": prompt,
            "output_length": answer,
            "hash_ids": [prompt],
        },
        "sharegpt": lambda t, prompt, answer: {
            "arrival_time_ns": t * 10**6,
            "output_toks": answer,
            "input_tok_ids": [7] * prompt,
        },
    }
    return json_file(directory, *(made[name](t, *row[1:]) for t, row in zip(times_ms, rows, strict=True)))


def kept(part: Reading, path: Path) -> list[WorkloadRequest]:
    """The requests in a part; none instead of the error that there are none."""
    try:
        return list(part.read(path))
    except WorkloadError:
        return []


@settings(max_examples=60)
@given(
    name=st.sampled_from(list(READERS)),
    rows=st.lists(TRACED, min_size=1, max_size=12),
    skip=st.integers(0, 4),
    limit=st.none() | st.integers(1, 6),
    start_s=st.sampled_from([0.0, 0.5, 6.0]),
    length_s=st.none() | st.sampled_from([2.0, 20.0]),
    rate_scale=st.sampled_from([1.0, 4.0]),
)
def test_a_part_of_a_trace_is_that_of_the_workload_made_of_it(
    name: str,
    rows: list[tuple[int, int, int]],
    skip: int,
    limit: int | None,
    start_s: float,
    length_s: float | None,
    rate_scale: float,
) -> None:
    end_s = None if length_s is None else start_s + length_s
    part = Reading(skip=skip, limit=limit, start_s=start_s, end_s=end_s, rate_scale=rate_scale)
    with TemporaryDirectory() as directory:
        trace = write_traced(Path(directory), name, rows)
        converted = Path(directory) / "converted.jsonl"
        write_workload(converted, Reading().read(trace))
        of_trace, of_workload = kept(part, trace), kept(part, converted)
    assert [request.id for request in of_trace] == [request.id for request in of_workload]
    for one, other in zip(of_trace, of_workload, strict=True):
        assert other.arrival == pytest.approx(one.arrival, abs=1e-9)
        assert msgspec.structs.replace(other, arrival=one.arrival) == one
    if of_trace:
        assert of_trace[0].arrival == of_workload[0].arrival == 0.0


def test_only_a_part_without_the_beginning_is_moved(tmp_path: Path) -> None:
    load = [WorkloadRequest(id=n, prompt_len=5, max_tokens=2, arrival=3.0 + n) for n in range(4)]
    path = tmp_path / "load.jsonl"
    write_workload(path, load)
    assert list(Reading(limit=2).read(path)) == load[:2], "a workload may begin late"
    assert [request.arrival for request in Reading(skip=1).read(path)] == [0.0, 1.0, 2.0]
    write_workload(path, [WorkloadRequest(id=n, prompt_len=5, max_tokens=2, arrival_step=3 * n) for n in range(4)])
    assert [request.arrival_step for request in Reading(skip=2).read(path)] == [0, 3]


def test_what_waits_for_others_is_where_they_are(tmp_path: Path) -> None:
    def one(name: str, **comes: Any) -> WorkloadRequest:
        return WorkloadRequest(id=name, prompt_len=5, max_tokens=2, **comes)

    load = [one("a", arrival=0), one("a1", after="a", delay=4), one("b", arrival=2), one("b1", after="b", delay=4)]
    path = tmp_path / "load.jsonl"
    write_workload(path, [*load, one("ab", after=["a1", "b1"]), one("c", arrival=6)])

    def read(**options: Any) -> list[tuple[Any, float | None, float]]:
        return [(request.id, request.arrival, request.delay) for request in Reading(**options).read(path)]

    assert read(start_s=1, rate_scale=2.0) == [("b", 0.0, 0), ("b1", None, 4), ("c", 2.0, 0)]
    assert [name for name, *_ in read(end_s=6)] == ["a", "a1", "b", "b1", "ab"]
    assert read(skip=1, limit=2) == [("b", 0.0, 0), ("b1", None, 4)]
    assert [name for name, *_ in read(limit=3)] == ["a", "a1", "b"]
