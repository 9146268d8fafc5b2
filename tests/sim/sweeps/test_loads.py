"""Loads of sweeps are those of the generators and readers, at any rate."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import ConfigError
from sim.generators import independent_requests, poisson, uniform
from sim.sweeps.loads import AgentsLoad, DrawnLoad, FileLoad, SessionsLoad, stretched
from sim.workload import WorkloadRequest, write_workload


def test_drawn_requests_are_those_of_the_generator() -> None:
    load = DrawnLoad(num_requests=20, prompt_len="uniform:10,20", output_len="uniform:1,5", rate=3.0)
    expected = independent_requests(
        20, prompt_len=uniform(10, 20), output_len=uniform(1, 5), arrivals=poisson(3.0), seed=7
    )
    assert list(load.requests(7)) == list(expected)


def test_another_rate_is_the_same_draw_in_another_measure_of_time() -> None:
    load = DrawnLoad(num_requests=20, prompt_len="uniform:10,20", output_len="3", rate=3.0, arrival_cv=2.0)
    slow, fast = list(load.requests(0)), list(load.at_rate(6.0).requests(0))
    for one, other in zip(slow, fast, strict=True):
        assert (one.prompt_len, one.max_tokens) == (other.prompt_len, other.max_tokens)
        assert one.arrival == pytest.approx(2 * (other.arrival or 0.0))


def test_requests_may_come_for_a_time() -> None:
    load = DrawnLoad(load_duration_s=5.0, rate=20.0, prompt_len="10", output_len="3")
    requests = list(load.requests(0))
    assert len(requests) == 93
    assert requests == list(DrawnLoad(num_requests=93, rate=20.0, prompt_len="10", output_len="3").requests(0))
    assert 4.5 < (requests[-1].arrival or 0.0) <= 5.0
    with pytest.raises(ConfigError, match="not together with num_requests"):
        DrawnLoad(load_duration_s=5.0, rate=20.0, num_requests=3)


def test_conversations_begin_at_the_rate_and_go_on_at_their_own_pace() -> None:
    load = SessionsLoad(num_sessions=5, rate=2.0, answer_len="5", message_len="7")
    fast = {request.id: request for request in load.requests(1)}
    slow = {request.id: request for request in load.at_rate(1.0).requests(1)}
    assert fast.keys() == slow.keys()
    assert slow["4-0"].arrival == pytest.approx(2 * (fast["4-0"].arrival or 0.0))
    later = [turn for turn in fast if not str(turn).endswith("-0")]
    assert later
    for turn in later:
        assert fast[turn] == slow[turn]
        assert fast[turn].arrival is None


def test_agents_are_those_of_the_generator() -> None:
    load = AgentsLoad(num_agents=3, num_calls="2", num_sub_agents=2, system_len=10, sub_system_len=5, rate=2.0)
    ids = [str(request.id) for request in load.requests(0)]
    assert len(ids) == 3 * (2 + 2 * 2)
    assert [request.id for request in load.at_rate(1.0).requests(0)] == ids
    at_once = AgentsLoad(num_agents=3, num_calls="2", mean_tool_s=0)
    assert [(request.arrival, request.delay) for request in at_once.requests(0)] == [(0, 0), (None, 0)] * 3
    with pytest.raises(ConfigError, match="num_agents=0"):
        AgentsLoad(num_agents=0)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20).map(sorted), st.floats(1e-3, 1e3))
def test_a_file_is_stretched_to_a_rate(times_s: list[float], rate: float) -> None:
    requests = [WorkloadRequest(id=i, prompt_len=4, max_tokens=2, arrival=t) for i, t in enumerate(times_s)]
    if times_s[0] == times_s[-1]:
        with pytest.raises(ConfigError, match="only for requests that arrive at different seconds"):
            stretched(requests, rate)
        return
    arrivals = [request.arrival or 0.0 for request in stretched(requests, rate)]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0.0
    assert (len(arrivals) - 1) / arrivals[-1] == pytest.approx(rate)


def test_a_rate_counts_those_that_wait_for_none() -> None:
    load = [
        WorkloadRequest(id=i, prompt_len=4, max_tokens=2, **comes)
        for i, comes in enumerate([{"arrival": 3}, {"after": 0, "delay": 7}, {"arrival": 4}, {"arrival": 7}])
    ]
    found = stretched(load, 0.5)
    assert [(request.arrival, request.delay) for request in found] == [(0, 0), (None, 7), (1, 0), (4, 0)]
    with pytest.raises(ConfigError, match="only for requests that arrive at different seconds"):
        stretched(load[:2], 0.5)


def test_a_file_may_be_cut_and_sped_up(tmp_path: Path) -> None:
    path, rng = tmp_path / "load.jsonl", Random(0)
    write_workload(
        path, [WorkloadRequest(id=i, prompt_len=rng.randint(1, 9), max_tokens=2, arrival=i) for i in range(9)]
    )
    load = FileLoad(workload=str(path), skip=2, limit=4, rate_scale=2.0)
    assert [(request.id, request.arrival) for request in load.requests(0)] == [(i, (i - 2) / 2) for i in range(2, 6)]
    span = FileLoad(workload=str(path), start_s=3, end_s=6)
    assert [(request.id, request.arrival) for request in span.requests(0)] == [(i, i - 3) for i in range(3, 6)]
    arrivals = [request.arrival or 0.0 for request in load.at_rate(0.5).requests(0)]
    assert arrivals[-1] - arrivals[0] == pytest.approx(6.0)


def test_requests_that_come_by_step_have_no_rate(tmp_path: Path) -> None:
    write_workload(tmp_path / "load.jsonl", [WorkloadRequest(id=0, prompt_len=4, max_tokens=2, arrival_step=3)])
    with pytest.raises(ConfigError, match=r"rate=2\.0"):
        FileLoad(workload=str(tmp_path / "load.jsonl"), rate=2.0).requests(0)
