"""What the virtual clock counts, and that nothing else plays a part."""

from __future__ import annotations

import time
from itertools import count, pairwise

import pytest

from nanovllm.config import Config
from nanovllm.trace.events import (
    Preempted,
    RequestAdded,
    RequestFinished,
    StepFinished,
    StepStarted,
)
from sim import simulate
from sim.generators import independent_requests, poisson, uniform
from sim.workload import WorkloadRequest
from tests.engine.runs import steps_of
from tests.sim.runs import SMALL, as_bytes, of_kind, requests, run


def test_every_scheduled_token_is_charged_also_after_a_preemption() -> None:
    # Scenario 27, on the load of scenario 4: 41 tokens are enough with room for all, 51 with five blocks.
    load = requests((2, 9, 0), (3, 7, 0), (8, 2, 0), (4, 10, 0))
    for config, computed, preemptions in (
        (SMALL, 41, 0),
        (Config(kvcache_block_size=4, num_kvcache_blocks=5, max_num_batched_tokens=64, max_num_seqs=8), 51, 3),
    ):
        result = run(load, config)
        assert sum(event.tokens for event in of_kind(result, StepFinished)) == computed
        assert result.time_s == result.time_spent.total_s == computed
        assert len(of_kind(result, Preempted)) == preemptions


def test_nothing_runnable_jumps_to_the_next_arrival() -> None:
    # Scenario 28: prompt of 3 and two decodes take 5 s; then nothing until 100 s.
    result = run(requests((3, 3, 0), (4, 2, 100.25)))
    assert [(event.time) for event in of_kind(result, StepStarted)] == [0, 3, 4, 100.25, 104.25]
    assert result.time_s == 105.25
    assert result.time_spent.total_s == 10
    added = of_kind(result, RequestAdded)
    assert [(event.time, event.arrival) for event in added] == [(0, 0), (100.25, 100.25)]


def test_something_runnable_is_never_left_idle() -> None:
    workload = independent_requests(
        60, prompt_len=uniform(1, 40), output_len=uniform(1, 20), arrivals=poisson(0.02), seed=5
    )
    present = num_jumps = 0
    last_end, left_then = 0.0, 0
    for event in run(workload).events:
        if isinstance(event, RequestAdded):
            present += 1
        elif isinstance(event, RequestFinished):
            present -= 1
        elif isinstance(event, StepStarted):
            assert event.time == last_end or left_then == 0
            num_jumps += event.time > last_end
        elif isinstance(event, StepFinished):
            last_end, left_then = event.time, present
    assert present == 0
    assert num_jumps > 5


def test_a_request_that_arrives_during_a_step_waits_for_its_end() -> None:
    result = run(requests((10, 1, 0), (2, 1, 4.5)))
    added = of_kind(result, RequestAdded)
    assert [(event.time, event.arrival) for event in added] == [(0, 0), (10, 4.5)]


def test_the_programs_own_time_never_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = list(independent_requests(30, prompt_len=uniform(1, 40), output_len=uniform(1, 20), arrivals=poisson(9)))
    expected = as_bytes(simulate(SMALL, workload).events)
    hours = count(step=3600.0)
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: next(hours))
    result = simulate(SMALL, workload)
    assert as_bytes(result.events) == expected
    assert result.loop_time_s >= 3600 > result.time_s


def test_arrival_by_step() -> None:
    load = [
        WorkloadRequest(id="a", prompt_len=2, max_tokens=4),
        WorkloadRequest(id="b", prompt_len=2, max_tokens=1, arrival_step=2),
        WorkloadRequest(id="c", prompt_len=2, max_tokens=1, arrival_step=9),
    ]
    steps = steps_of(run(load).events)
    assert [(step.index, [request for request, _, _ in step.chunks]) for step in steps if step.chunks] == [
        (0, ["a"]),
        (2, ["b"]),
        (9, ["c"]),
    ]


def test_a_pool_slightly_too_small_is_a_cliff_not_a_slope() -> None:
    # Scenario 30: 200 requests at 12 a second on an L4 fit 950 blocks; every 50 blocks less cost more than the last.
    load = list(
        independent_requests(
            200, prompt_len=uniform(100, 400), output_len=uniform(100, 300), arrivals=poisson(12), seed=1
        )
    )
    p99_s: dict[int, float] = {}
    preemptions: dict[int, int] = {}
    for num_blocks in (1000, 950, 900, 850, 800, 700, 600):
        config = Config(
            kvcache_block_size=16, num_kvcache_blocks=num_blocks, max_num_batched_tokens=2048, max_num_seqs=256
        )
        metrics = simulate(config, load, gpu="l4", model="qwen3-0.6b").metrics
        assert metrics.time_to_first_token_s is not None
        p99_s[num_blocks] = metrics.time_to_first_token_s.p99
        preemptions[num_blocks] = metrics.num_preemptions
    assert p99_s[1000] == p99_s[950]
    assert preemptions[950] == 0 < preemptions[900] < preemptions[800] < preemptions[700] < preemptions[600]
    for more, fewer in pairwise((950, 850, 800, 700, 600)):
        assert p99_s[fewer] > p99_s[more]
    assert p99_s[900] < 2 * p99_s[950]
    assert p99_s[800] > 10 * p99_s[900]
