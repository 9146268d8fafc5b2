"""``nanovllm simulate --replicas``: tables, JSON, a trace each, and what several replicas refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanovllm.cli import cluster
from nanovllm.cli.cluster import ClusterInput
from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.trace.events import RequestAdded
from nanovllm.trace.jsonl import read_trace
from sim.cluster import ReplicaView, Route, simulation
from tests.cli.conftest import RunCommand


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six requests with one of two prefixes, and one that can never run."""
    lines = [
        {"id": index, "prompt_len": 70, "prefix": "ab"[index % 2], "prefix_len": 64, "max_tokens": 4, "arrival": index}
        for index in range(6)
    ]
    lines.append({"id": "huge", "prompt_len": 3000, "max_tokens": 1, "arrival": 7})
    path = tmp_path_factory.mktemp("cluster") / "load.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


SMALL = ("--kvcache-block-size", 16, "--num-kvcache-blocks", 100)


def test_routers_and_their_limits_are_those_of_the_simulator() -> None:
    assert tuple(simulation.ROUTERS) == cluster.ROUTERS
    assert cluster.MAX_REPLICAS == simulation.MAX_REPLICAS


def test_a_table_tells_of_each_replica_and_of_all(load: Path, run: RunCommand) -> None:
    outcome = run("simulate", load, *SMALL, "--replicas", 2, "--router", "prefix_aware")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "request 'huge': prompt (3000) + max_tokens (1) needs 188 KV blocks" in outcome.err
    for part in ("2 replicas, prefix_aware", "│ 0 ", "│ 1 ", "│ all ", "6 completed, 1 refused", "time to first token"):
        assert part in outcome.out
    assert "the router expected 61.0% of the prompt tokens to be found, 61.0% were" in outcome.out


def test_json_tells_of_each_replica_and_of_all(load: Path, run: RunCommand) -> None:
    told = json.loads(run("simulate", load, *SMALL, "--replicas", 2, "--router", "prefix_aware", "--json").out)
    assert (told["complete"], told["router"], told["expected_hit_tokens"]) == (True, "prefix_aware", 4 * 64)
    assert told["rejected"] == [{"id": "huge", "reason": "pool_too_small"}]
    assert [replica["hit_tokens"] for replica in told["replicas"]] == [128, 128]
    assert told["metrics"]["hit_tokens"] == 256
    assert told["metrics"]["num_requests"] == sum(replica["num_requests"] for replica in told["replicas"]) == 6


def test_each_replica_writes_a_trace(load: Path, tmp_path: Path, run: RunCommand) -> None:
    run("simulate", load, *SMALL, "--replicas", 3, "--trace", tmp_path / "run.jsonl.gz")
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == [f"run.replica-{index}.jsonl.gz" for index in range(3)]
    assert all(run("trace", "check", path).code == 0 for path in paths)
    added = [event.request for path in paths for event in read_trace(path).events if isinstance(event, RequestAdded)]
    assert added == [0, 3, 1, 4, 2, 5]


def test_one_replica_is_the_engine_alone(load: Path, tmp_path: Path, run: RunCommand) -> None:
    paths = tmp_path / "alone.jsonl", tmp_path / "one.jsonl"
    run("simulate", load, *SMALL, "--trace", paths[0])
    run("simulate", load, *SMALL, "--trace", paths[1], "--replicas", 1, "--router", "least_loaded")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_names_of_traces_keep_their_order_and_their_ending() -> None:
    names = [path.name for path in ClusterInput(replicas=11).trace_paths(Path("a/run.v2.jsonl"))]
    assert (names[0], names[10]) == ("run.v2.replica-00.jsonl", "run.v2.replica-10.jsonl")
    assert ClusterInput(replicas=2).trace_paths(Path("run")) == [Path("run.replica-0"), Path("run.replica-1")]
    assert ClusterInput().trace_paths(Path("run.jsonl")) == [Path("run.jsonl")]
    assert ClusterInput(replicas=2).trace_paths(None) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--replicas 0", "replicas=0 is not allowed: a whole number from 1 upward"),
        ("--replicas 1025", "replicas=1025 is not allowed: at most 1024"),
        (
            "--replicas 2 --router best",
            "router='best' is not allowed: one of round_robin, least_loaded, prefix_aware",
        ),
        ("--replicas 2 --router pathlib:Pat", "router='pathlib:Pat' is not allowed: module 'pathlib' has no class"),
        ("--replicas 2 --router pathlib:Path", "router='pathlib:Path' is not allowed: a class with a method route"),
        ("--replicas 2 --live", "live=True is not allowed: with one replica only"),
        ("--replicas 2 --outputs trace.jsonl", "outputs='trace.jsonl' is not allowed: with one replica only"),
        ("--replicas 2 --policy fifo", "policy='fifo' is not allowed"),
    ],
)
def test_mistakes_are_one_line(words: str, problem: str, load: Path, run: RunCommand) -> None:
    outcome = run("simulate", load, *words.split())
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"error: {problem}")


class LastReplica:
    """A router of one's own."""

    def __init__(self, config: Config, num_replicas: int) -> None:
        self._last = num_replicas - 1

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        return Route(self._last)


def test_a_router_of_ones_own_by_its_name(load: Path, run: RunCommand) -> None:
    outcome = run("simulate", load, *SMALL, "--replicas", 3, "--router", f"{__name__}:LastReplica", "--json")
    told = json.loads(outcome.out)
    assert [replica["num_requests"] for replica in told["replicas"]] == [0, 0, 6]


def test_arrivals_by_step_need_one_engine(workload: Path, run: RunCommand) -> None:
    outcome = run("simulate", workload, "--replicas", 2)
    assert (outcome.code, outcome.out) == (2, "")
    assert "arrival_step=4 is not allowed: replicas have no steps in common" in outcome.err


def test_a_replica_writes_over_no_file_that_is_read(load: Path, tmp_path: Path, run: RunCommand) -> None:
    copied = tmp_path / "run.replica-1.jsonl"
    copied.write_bytes(load.read_bytes())
    outcome = run("simulate", copied, "--replicas", 2, "--trace", tmp_path / "run.jsonl")
    assert (outcome.code, copied.read_bytes()) == (2, load.read_bytes())
    assert "is read by this command" in outcome.err
