"""The policies that rank requests: who is admitted, who gives way, and what ageing does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import msgspec
import pytest
from hypothesis import given, settings

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.check import check
from nanovllm.trace.events import Admitted, AnyEvent, BlocksAllocated, Preempted
from tests.engine.runs import Run, run_to_end
from tests.engine.scenarios import own_tokens
from tests.engine.test_properties import cases, run
from tests.fakes import HashBackend


def request(name: int, length: int, max_tokens: int, *, arrival_step: int = 0, priority: int = 0) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=own_tokens(name, length),
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        arrival_step=arrival_step,
        priority=priority,
    )


def run_ranked(policy: str, *requests: Request, **options: object) -> Run:
    config = {"kvcache_block_size": 4, "num_kvcache_blocks": 16, "max_num_batched_tokens": 16, "policy": policy}
    result = run_to_end(Config.from_options(**{**config, **options}), requests)
    assert check(result.events) == []
    return result


def admitted(result: Run) -> list[object]:
    return [event.request for event in result.events_of(Admitted)]


def test_the_lowest_priority_number_comes_first_and_equals_as_they_came() -> None:
    priorities = (0, 2, -1, 0, 2, -1)
    requests = [request(name, 4, 1, priority=priority) for name, priority in enumerate(priorities)]
    assert admitted(run_ranked("priority", *requests, max_num_seqs=1)) == [2, 5, 0, 3, 1, 4]
    assert admitted(run_ranked("mixed", *requests, max_num_seqs=1)) == [0, 1, 2, 3, 4, 5]


def test_the_shortest_prompt_comes_first() -> None:
    requests = [request(name, length, 1) for name, length in enumerate((9, 5, 12, 5, 1))]
    assert admitted(run_ranked("shortest_first", *requests, max_num_seqs=1)) == [4, 1, 3, 0, 2]


def test_the_least_important_gives_way_wherever_it_runs() -> None:
    """Request 0 came first and runs first; 1 needs a third block, and there are only four."""
    requests = request(0, 8, 5, priority=1), request(1, 8, 5, priority=0)
    result = run_ranked("priority", *requests, num_kvcache_blocks=4)
    [preempted] = result.events_of(Preempted)
    assert (preempted.request, preempted.for_request, preempted.blocks) == (0, 1, [3, 2])
    taken = [(event.request, event.blocks) for event in result.events_of(BlocksAllocated)]
    assert taken == [(1, [0, 1]), (0, [2, 3]), (1, [3]), (0, [3, 1])]
    assert result.hit_tokens == [(0, 4)]
    assert [step.decoded for step in result.steps[1:5]] == [[1]] * 4


def waves(policy: str, ageing: float, late: Request) -> Iterator[tuple[int, int]]:
    """One slot, ``late`` waits, and in each step another request comes that is ranked before it, for one step's work:
    (step, request) of each admission."""
    config = Config(
        policy=policy, ageing=ageing, kvcache_block_size=4, num_kvcache_blocks=8, max_num_seqs=1, lookahead=False
    )
    events: list[AnyEvent] = []
    engine = Engine(config, HashBackend(8, 4), clock=VirtualClock(), emit=events.append)
    engine.add(request(-1, 4, 1, priority=-9))
    engine.add(late)
    for step in count():
        engine.add(request(100 + step, 4, 1, priority=0))
        engine.step()
        yield from ((step, event.request) for event in events if isinstance(event, Admitted))
        events.clear()


@pytest.mark.parametrize(
    ("policy", "late", "gains_per_step"), [("priority", {"priority": 3}, 0.25), ("shortest_first", {"length": 16}, 0.5)]
)
def test_without_ageing_one_may_starve_and_with_it_none_does(
    policy: str, late: dict[str, int], gains_per_step: float
) -> None:
    last = request(0, **{"length": 4, "max_tokens": 1, **late})
    starving = waves(policy, 0, last)
    assert all(name != 0 for _, name in (next(starving) for _ in range(100)))
    behind = late["priority"] if policy == "priority" else late["length"] - 4
    step = next(step for step, name in waves(policy, gains_per_step, last) if name == 0)
    # A request that comes this many steps later ranks no better, and equal ones go as they came.
    assert behind / gains_per_step <= step <= behind / gains_per_step + 1


@settings(max_examples=100)
@given(case=cases(policy="priority", ageing=0, lookahead=False))
def test_equal_priorities_are_the_mixed_policy(case: tuple[Config, list[Request]]) -> None:
    config, requests = case
    requests = [msgspec.structs.replace(request, priority=0) for request in requests]
    mixed = replace(config, policy="mixed", ageing=-1)
    assert run(config, requests).events[1:] == run(mixed, requests).events[1:]


@settings(max_examples=200)
@given(case=cases(policy="priority"))
def test_ranks_are_kept(case: tuple[Config, list[Request]]) -> None:
    assert check(run(*case).events) == []


@settings(max_examples=200)
@given(case=cases(policy="shortest_first"))
def test_ranks_by_length_are_kept(case: tuple[Config, list[Request]]) -> None:
    assert check(run(*case).events) == []
