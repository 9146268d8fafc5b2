"""What holds for any load, any engine and any router."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume, given, settings, strategies as st

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.trace.check import check
from nanovllm.trace.events import (
    AnyEvent,
    RequestAdded,
    RequestFinished,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from sim import simulate
from sim.cluster import ROUTERS, ClusterResult, ReplicaView, Route, simulate_cluster
from sim.workload import WorkloadRequest
from tests.sim.closed_loads import closed_loads
from tests.sim.runs import SecondPerToken, as_bytes
from tests.strategies import MAX_TOKENS, configs, prompts


@st.composite
def loads(draw: st.DrawFn) -> list[WorkloadRequest]:
    """Requests in order of arrival, some at once, some exactly when steps end; a few can never run."""
    load: list[WorkloadRequest] = []
    time_s = 0.0
    for index in range(draw(st.integers(1, 12))):
        time_s += draw(st.sampled_from([0, 0, 1, 2.5, 7, 60]))
        prompt, max_tokens = draw(prompts()), draw(st.integers(1, MAX_TOKENS))
        output_len = draw(st.one_of(st.none(), st.integers(1, max_tokens)))
        load.append(
            WorkloadRequest(id=index, prompt=prompt, max_tokens=max_tokens, output_len=output_len, arrival=time_s)
        )
    return load


routers = st.sampled_from(sorted(ROUTERS))
engines = configs(enable_prefix_caching=True)


def run(config: Config, load: list[WorkloadRequest], **options: object) -> ClusterResult:
    return simulate_cluster(config, load, cost_model=SecondPerToken(), **options)  # type: ignore[arg-type]


@given(engines, loads() | closed_loads(), routers)
def test_one_replica_does_what_an_engine_alone_does(config: Config, load: list[WorkloadRequest], router: str) -> None:
    alone = simulate(config, load, cost_model=SecondPerToken())
    cluster = run(config, load, num_replicas=1, router=router)
    assert as_bytes(cluster.replicas[0].events) == as_bytes(alone.events)
    assert (cluster.time_s, cluster.num_steps) == (alone.time_s, alone.num_steps)
    assert [(request, str(error)) for request, error in cluster.rejected] == [
        (request, str(error)) for request, error in alone.rejected
    ]
    assert cluster.metrics == alone.metrics


@given(engines, loads() | closed_loads(), routers, st.integers(2, 5))
def test_each_request_is_served_once_and_every_trace_keeps_the_laws(
    config: Config, load: list[WorkloadRequest], router: str, num_replicas: int
) -> None:
    cluster = run(config, load, num_replicas=num_replicas, router=router)
    traces = [replica.events for replica in cluster.replicas]
    ended = [
        event.request for trace in traces for event in trace if isinstance(event, (RequestFinished, RequestRejected))
    ]
    assert sorted(ended) == [request.id for request in load]  # type: ignore[type-var]
    for trace in traces:
        assert check(trace, complete=True) == []
    again = run(config, load, num_replicas=num_replicas, router=router)
    assert [as_bytes(replica.events) for replica in again.replicas] == [as_bytes(trace) for trace in traces]


@given(engines, closed_loads(), routers, st.integers(2, 4))
def test_none_comes_before_those_it_waits_for_wherever_they_are(
    config: Config, load: list[WorkloadRequest], router: str, num_replicas: int
) -> None:
    told: list[AnyEvent] = []
    run(config, load, num_replicas=num_replicas, router=router, emits=[told.append] * num_replicas)
    added = {event.request: event for event in told if isinstance(event, RequestAdded)}
    ends = {event.request: event.time for event in told if isinstance(event, (RequestFinished, RequestRejected))}
    for request in load:
        if request.after and request.id in added:
            due_s = max(ends[awaited] for awaited in request.after) + request.delay
            assert added[request.id].arrival == due_s <= added[request.id].time


@given(configs(enable_prefix_caching=True, lookahead=False), loads() | closed_loads(), routers, st.integers(2, 4))
def test_time_never_goes_back_for_the_cluster(
    config: Config, load: list[WorkloadRequest], router: str, num_replicas: int
) -> None:
    told: list[AnyEvent] = []  # of engines that look ahead, one hears a step late
    run(config, load, num_replicas=num_replicas, router=router, emits=[told.append] * num_replicas)
    moments = [event.time for event in told if isinstance(event, (RequestAdded, RequestRejected, StepStarted))]
    assert moments == sorted(moments)


class Watched:
    """Sends requests where a list says, and notes what it is shown."""

    def __init__(self, replicas: Sequence[int]) -> None:
        self.seen: list[tuple[float, list[tuple[int, int, int, int]]]] = []
        self._replicas = iter(replicas)

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        self.seen.append((request.arrival_s, [_numbers(view) for view in replicas]))
        return Route(next(self._replicas))


def _numbers(view: ReplicaView) -> tuple[int, int, int, int]:
    return view.num_waiting, view.num_running, view.waiting_prompt_tokens, view.promised_output_tokens


@settings(max_examples=60)
@given(engines, loads(), st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_a_router_sees_what_has_come_back_by_then_and_nothing_later(
    config: Config, load: list[WorkloadRequest], routes: list[int]
) -> None:
    router = Watched(routes)
    cluster = run(config, load, num_replicas=3, router=lambda *_: router)
    # One step ahead, a trace tells a refusal after the step that was computed meanwhile.
    assume(not (config.lookahead and cluster.rejected))
    for index, (time_s, shown) in enumerate(router.seen):
        sent = [[request for request, to in zip(load[:index], routes, strict=False) if to == r] for r in range(3)]
        expected = [
            _told_by(trace.events, requests, time_s) for trace, requests in zip(cluster.replicas, sent, strict=True)
        ]
        assert shown == expected


def _told_by(trace: list[AnyEvent], sent: list[WorkloadRequest], time_s: float) -> tuple[int, int, int, int]:
    """What the whole trace of a replica says of ``time_s``, of the requests that were sent there before."""
    begun: set[RequestId] = set()
    ended: set[RequestId] = set()
    tokens: list[RequestId] = []
    for event in trace:
        if isinstance(event, TokensAppended):
            tokens += event.requests
        elif isinstance(event, StepFinished):
            if event.time <= time_s:
                begun.update(tokens)
            tokens = []
        elif isinstance(event, RequestFinished):
            ended.update([event.request] if event.time <= time_s else [])
        elif isinstance(event, RequestRejected):
            ended.update([event.request] if event.time < time_s else [])
    open_requests = [request for request in sent if request.id not in ended]
    waiting = [request for request in open_requests if request.id not in begun]
    return (
        len(waiting),
        len(open_requests) - len(waiting),
        sum(len(request.prompt or ()) for request in waiting),
        sum(request.max_tokens for request in open_requests),
    )
