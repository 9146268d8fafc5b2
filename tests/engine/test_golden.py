"""The 512 golden workloads: every decision equal, step by step, to an independent implementation."""

from __future__ import annotations

import gzip
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from nanovllm.config import Config
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import Preempted

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "cases.jsonl.gz"


def load_cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt") as lines:
        return [json.loads(line) for line in lines]


def sampled_token(seq: Sequence) -> int:
    assert isinstance(seq.request_id, int)
    return 1000 + (seq.request_id * 7919 + seq.num_tokens * 104729) % 90001


def run_case(case: dict[str, Any]) -> list[dict[str, Any]]:
    options = dict(case["config"])
    events: list[Any] = []
    config = Config(
        kvcache_block_size=options.pop("block_size"), num_kvcache_blocks=options.pop("num_blocks"), **options
    )
    scheduler = Scheduler(config, emit=events.append)
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
