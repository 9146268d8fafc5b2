"""Every policy on a real model: the same tokens, and the decisions that the simulator makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nanovllm.config import POLICIES
from nanovllm.engine.engine import Engine
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.trace.check import check
from nanovllm.trace.diff import diff
from nanovllm.trace.events import AnyEvent, Preempted, StepFinished
from nanovllm.trace.jsonl import TraceWriter
from sim import simulate
from sim.comparison.traced_run import read_traced_run
from sim.outputs import RecordedOutputs
from sim.workload import WorkloadRequest, to_requests
from tests.runner.test_model_runner import CONFIG, SPEC

TIGHT = replace(
    CONFIG, max_model_len=100, num_kvcache_blocks=14, max_num_batched_tokens=10, max_num_seqs=4, num_threads=1
)
WORK = [
    WorkloadRequest(
        id=index,
        prompt=[(13 * index + 5 * place) % 97 for place in range(4 + 5 * index % 17)],
        max_tokens=6 + index,
        arrival_step=index,
        seed=index,
        ignore_eos=True,
        priority=-index,
    )
    for index in range(7)
]


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(TIGHT, spec=SPEC)


def run(runner: ModelRunner, policy: str) -> tuple[dict[object, list[int]], list[AnyEvent]]:
    events: list[AnyEvent] = []
    engine = Engine(replace(TIGHT, policy=policy), runner, emit=events.append)
    results = list(engine.run(to_requests(WORK)))
    return {seq.request_id: seq.completion_token_ids for result in results for seq in result.finished}, events


@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_and_decisions_are_the_same(runner: ModelRunner, policy: str) -> None:
    tokens, events = run(runner, policy)
    assert tokens == run(runner, "prefill_first")[0]
    assert check(events) == []
    phases = {event.phase for event in events if isinstance(event, StepFinished)}
    assert phases == ({"prefill", "decode"} if policy == "prefill_first" else {"prefill", "decode", "mixed"})
    assert any(isinstance(event, Preempted) for event in events)
    simulated = simulate(replace(TIGHT, policy=policy), WORK, model=SPEC, outputs=RecordedOutputs(events))
    assert simulated.events[0].policy == policy
    assert diff(events, simulated.events) is None


def test_a_trace_tells_policy_and_priorities(runner: ModelRunner, tmp_path: Path) -> None:
    _, events = run(runner, "priority")
    with TraceWriter(tmp_path / "run.jsonl") as writer:
        for event in events:
            writer.emit(event)
    read = read_traced_run(tmp_path / "run.jsonl", by_step=True)
    assert (read.config.policy, read.config.ageing) == ("priority", 0.01)
    assert [request.priority for request in read.workload] == [request.priority for request in WORK]
