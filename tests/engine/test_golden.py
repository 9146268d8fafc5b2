"""The 512 golden workloads: every decision equal, step by step, to an independent implementation."""

from __future__ import annotations

import gzip
import json
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    DecodeScheduled,
    Preempted,
    RequestFinished,
    StepFinished,
    StepStarted,
)
from nanovllm.trace.replay import Replay

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "cases.jsonl.gz"


def load_cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt") as lines:
        return [json.loads(line) for line in lines]


def sampled_token(seq: Sequence) -> int:
    assert isinstance(seq.request_id, int)
    return 1000 + (seq.request_id * 7919 + seq.num_tokens * 104729) % 90001


def config_of(case: dict[str, Any]) -> Config:
    options = dict(case["config"])
    return Config(kvcache_block_size=options.pop("block_size"), num_kvcache_blocks=options.pop("num_blocks"), **options)


def run_case(case: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[Any] = []
    scheduler = Scheduler(config_of(case), emit=events.append)
    requests = sorted(enumerate(case["requests"]), key=lambda item: item[1]["arrival_step"])
    arrivals, step, steps = deque(requests), 0, []
    while arrivals or not scheduler.is_finished():
        if scheduler.is_finished():
            step = max(step, arrivals[0][1]["arrival_step"])
        while arrivals and arrivals[0][1]["arrival_step"] <= step:
            index, request = arrivals.popleft()
            params = SamplingParams(max_tokens=request["max_tokens"], ignore_eos=True)
            scheduler.add(Sequence(request["prompt"], params, index))
        events.clear()
        seqs, is_prefill = scheduler.schedule()
        scheduled = [[s.request_id, s.num_cached_tokens, s.num_scheduled_tokens] for s in seqs]
        finished = scheduler.postprocess(seqs, [sampled_token(seq) for seq in seqs], is_prefill)
        steps.append(
            {
                "phase": "prefill" if is_prefill else "decode",
                "scheduled": scheduled,
                "preempted": [event.request for event in events if isinstance(event, Preempted)],
                "finished": [seq.request_id for seq in finished],
                "free_blocks": scheduler.block_manager.num_free_blocks,
            }
        )
        step += 1
    return steps


@pytest.mark.skipif(not GOLDEN.exists(), reason=f"the golden cases are not there: {GOLDEN}")
def test_all_decisions_equal_the_golden_ones() -> None:
    cases = load_cases()
    assert len(cases) == 512
    for case in cases:
        assert run_case(case) == case["steps"], f"case {case['name']}"


class EarlyBackend:
    """Takes steps early; a token depends on the request and on the place of the token."""

    name = "early"

    def __init__(self, num_kv_blocks: int) -> None:
        self.num_kv_blocks = num_kv_blocks

    def submit(self, batch: ScheduledBatch) -> EarlyStep:
        return EarlyStep([sampled_token(seq) for seq in batch.sequences])

    def execute(self, batch: ScheduledBatch) -> list[int]:
        raise AssertionError("the engine does not look ahead")

    def close(self) -> None:
        pass


class EarlyStep(NamedTuple):
    tokens: list[int]

    def result(self) -> list[int]:
        return self.tokens


def steps_told(events: list[AnyEvent]) -> list[dict[str, Any]]:
    """What ``run_case`` notes of each step, from a trace."""
    steps: list[dict[str, Any]] = []
    replay = Replay()
    for event in events:
        if isinstance(event, StepStarted):
            steps.append({"scheduled": [], "preempted": [], "finished": []})
        elif isinstance(event, ChunkScheduled):
            steps[-1]["scheduled"].append([event.request, event.start, event.tokens])
        elif isinstance(event, DecodeScheduled):
            steps[-1]["scheduled"] += [[name, replay.requests[name].num_cached_tokens, 1] for name in event.requests]
        elif isinstance(event, Preempted):
            steps[-1]["preempted"].append(event.request)
        elif isinstance(event, RequestFinished):
            steps[-1]["finished"].append(event.request)
        replay.apply(event)
        if isinstance(event, StepFinished):
            steps[-1] |= {"phase": event.phase, "free_blocks": len(replay.free_blocks)}
    return steps


@pytest.mark.skipif(not GOLDEN.exists(), reason=f"the golden cases are not there: {GOLDEN}")
def test_an_engine_that_looks_ahead_decides_the_same() -> None:
    for case in load_cases():
        events: list[AnyEvent] = []
        config = config_of(case)
        engine = Engine(config, EarlyBackend(config.num_kvcache_blocks), clock=VirtualClock(), emit=events.append)
        requests = [
            Request(
                request_id=index,
                prompt_token_ids=request["prompt"],
                sampling_params=SamplingParams(max_tokens=request["max_tokens"], ignore_eos=True),
                arrival_step=request["arrival_step"],
            )
            for index, request in enumerate(case["requests"])
        ]
        for _ in engine.run(sorted(requests, key=lambda request: request.arrival_step)):
            pass
        assert steps_told(events) == case["steps"], f"case {case['name']}"
