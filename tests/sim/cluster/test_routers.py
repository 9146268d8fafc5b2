"""Who gets which request, by hand; a token takes a second."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.errors import ConfigError
from nanovllm.trace.events import AnyEvent, RequestAdded, StepStarted
from sim.block_hashes import block_hashes
from sim.cluster import ClusterResult, ReplicaView, Route, simulate_cluster
from sim.cluster.prefix_aware import PrefixAware
from sim.cluster.prefix_index import PrefixIndex
from sim.workload import WorkloadRequest
from tests.sim.runs import SMALL, SecondPerToken, requests


def run(load: Iterable[WorkloadRequest], num_replicas: int = 2, **options: Any) -> ClusterResult:
    return simulate_cluster(SMALL, load, num_replicas=num_replicas, cost_model=SecondPerToken(), **options)


def routes(cluster: ClusterResult) -> list[list[Any]]:
    """The ids of the requests that each replica was handed, in order."""
    return [
        [event.request for event in replica.events if isinstance(event, RequestAdded)] for replica in cluster.replicas
    ]


def test_round_robin_takes_one_after_the_other() -> None:
    load = requests(*[(4, 1, 0)] * 7)
    assert routes(run(load, 3, router="round_robin")) == [[0, 3, 6], [1, 4], [2, 5]]


def test_least_loaded_counts_prompts_until_the_first_token_and_answers_until_the_end() -> None:
    load = requests(
        (20, 10, 0),  # equal: the first; its prompt is computed until 20, it ends at 29
        (8, 16, 1),  # 30 tokens against 0: the second; its prompt is computed until 9, it ends at 24
        (1, 1, 8),  # 30 against 24
        (1, 1, 9),  # 30 against 18: a prompt is done, and both are promised what they may generate
        (1, 1, 20.5),  # 10 against 16: the other prompt is done too
    )
    assert routes(run(load, router="least_loaded")) == [[0, 4], [1, 2, 3]]


def test_a_result_is_known_when_the_step_is_over_not_when_it_was_decided() -> None:
    # The first request may generate 30 tokens and ends with its first, at 8. At 7.5 nobody can know: 38 against 21.
    first = WorkloadRequest(id=0, prompt_len=8, max_tokens=30, output_len=1, arrival=0)
    second = WorkloadRequest(id=1, prompt_len=20, max_tokens=1, arrival=0)
    for arrival, expected in ((7.5, [[0], [1, 2]]), (8, [[0, 2], [1]])):
        third = WorkloadRequest(id=2, prompt_len=1, max_tokens=1, arrival=arrival)
        assert routes(run([first, second, third], router="least_loaded")) == expected


def test_of_equal_replicas_the_one_that_rested_longest_is_taken() -> None:
    load = requests(*[(4, 1, 100 * index) for index in range(7)])
    for router in ("least_loaded", "prefix_aware"):
        assert routes(run(load, 3, router=router)) == [[0, 3, 6], [1, 4], [2, 5]]


def test_replicas_compute_at_the_same_time() -> None:
    one, two = (run(requests((8, 4, 0), (8, 4, 0)), count, router="round_robin") for count in (1, 2))
    assert (one.time_s, two.time_s) == (8 + 8 + 2 * 3, 8 + 3)
    starts = [[event.time for event in replica.events if isinstance(event, StepStarted)] for replica in two.replicas]
    assert starts == [[0, 8, 9, 10]] * 2


def of_prefix(*shapes: tuple[str | None, int, float]) -> list[WorkloadRequest]:
    """(prefix, prompt length, arrival) of each: of a named prefix, all tokens but the last two. One token is made."""
    return [
        WorkloadRequest(
            id=i, prompt_len=length, max_tokens=1, arrival=arrival, prefix=name, prefix_len=length - 2 if name else None
        )
        for i, (name, length, arrival) in enumerate(shapes)
    ]


def test_prefix_aware_goes_where_the_prefix_is_cached_and_spreads_new_ones() -> None:
    load = of_prefix(("a", 10, 0), ("b", 10, 100), ("b", 10, 200), ("a", 10, 300), ("c", 6, 400), ("a", 14, 500))
    # Two blocks of each prefix are cached: 8 tokens. The fifth request is new to both.
    cluster = run(load, router="prefix_aware")
    assert routes(cluster) == [[0, 3, 5], [1, 2, 4]]
    assert cluster.metrics.hit_tokens == cluster.expected_hit_tokens == 8 + 8 + 8


class BusyFirst:
    """Prefix-aware, but for the request that is to keep the first replica busy."""

    def __init__(self, config: Config, num_replicas: int) -> None:
        self._router = PrefixAware(config, num_replicas)

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        return Route(0) if request.request_id == "busy" else self._router.route(request, replicas)


@pytest.mark.parametrize(("outstanding", "expected"), [(7, 0), (8, 1), (9, 1)])
def test_prefix_aware_makes_a_detour_of_fewer_tokens_than_are_cached(outstanding: int, expected: int) -> None:
    load = [
        *of_prefix(("a", 10, 0)),  # leaves 8 tokens in the first replica's cache
        WorkloadRequest(id="busy", prompt_len=outstanding - 2, max_tokens=2, arrival=100),
        WorkloadRequest(id="next", prompt_len=10, prefix="a", prefix_len=8, max_tokens=1, arrival=100),
    ]
    assert "next" in routes(run(load, router=BusyFirst))[expected]


def test_nothing_is_expected_of_engines_that_cache_no_prefixes() -> None:
    config = replace(SMALL, enable_prefix_caching=False)
    cluster = simulate_cluster(
        config,
        of_prefix(("a", 10, 0), ("a", 10, 9)),
        num_replicas=2,
        router="prefix_aware",
        cost_model=SecondPerToken(),
    )
    assert (routes(cluster), cluster.expected_hit_tokens) == ([[0], [1]], 0)


def test_expected_hits_do_not_count_as_work() -> None:
    # 18 of 20 tokens are expected to be cached, 16 of them in full blocks: 4 + 1 tokens are outstanding, not 21.
    seen: list[int] = []

    class Spying(PrefixAware):
        def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
            seen.append(replicas[0].outstanding_tokens)
            return super().route(request, replicas)

    run(of_prefix(("a", 20, 0), ("a", 20, 100), ("b", 4, 100)), router=Spying)
    assert seen == [0, 0, 5]


def test_imbalance_is_what_the_fullest_has_to_do_over_the_average() -> None:
    # The arrivals see 0 and 0, then 5 and 0, then 5 and 9 outstanding tokens.
    cluster = run(requests((4, 1, 0), (8, 1, 0), (1, 1, 0)), router="least_loaded")
    assert cluster.load_imbalance == pytest.approx((0 + 5 + 9) / (0 + 2.5 + 7))
    assert run(requests((4, 1, 0))).load_imbalance == 1
    everything_to_one = run(requests(*[(4, 1, 0)] * 4), 3, router=lambda *_: ToTheFirst())
    assert everything_to_one.load_imbalance == pytest.approx(3)


class ToTheFirst:
    """Sends all requests to one replica."""

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        return Route(0)


def test_a_refused_request_is_no_work() -> None:
    cluster = run(requests((500, 1, 0), (4, 30, 0), (1, 1, 0.5)), router="least_loaded")
    assert [request for request, _ in cluster.rejected] == [0]
    assert routes(cluster) == [[2], [1]]


def test_the_index_forgets_the_deepest_blocks_of_what_was_used_longest_ago() -> None:
    index = PrefixIndex(4)
    old, new = block_hashes(range(12), 4), block_hashes(range(50, 58), 4)
    index.add(old)
    index.add(new)
    assert (index.num_leading(old), index.num_leading(new), len(index)) == (2, 2, 4)
    index.add(old[:1])
    index.add(block_hashes([9, 9, 9, 9], 4))
    assert (index.num_leading(old), index.num_leading(new)) == (1, 2)


@given(st.lists(st.lists(st.integers(0, 1), max_size=9), max_size=12), st.integers(1, 3), st.integers(1, 6))
def test_the_index_knows_common_prefixes(prompts: list[list[int]], block_size: int, max_blocks: int) -> None:
    index, boundless = PrefixIndex(max_blocks), PrefixIndex(1000)
    sent: list[list[int]] = []
    for prompt in prompts:
        hashes = block_hashes(prompt, block_size)
        assert len(hashes) == len(prompt) // block_size
        common = max((_num_common_blocks(prompt, other, block_size) for other in sent), default=0)
        assert boundless.num_leading(hashes) == common
        assert index.num_leading(hashes) <= common
        for each in (index, boundless):
            each.add(hashes)
        sent.append(prompt)
        assert len(index) <= max_blocks
        assert index.num_leading(hashes) == min(len(hashes), max_blocks)


def _num_common_blocks(a: list[int], b: list[int], block_size: int) -> int:
    sizes = range(min(len(a), len(b)) // block_size, 0, -1)
    return next((size for size in sizes if a[: size * block_size] == b[: size * block_size]), 0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"router": "fastest"},
            "router='fastest' is not allowed: one of round_robin, least_loaded, prefix_aware, or module:Class",
        ),
        ({"num_replicas": 0}, "replicas=0 is not allowed: a whole number from 1 upward"),
        ({"num_replicas": 2000}, "replicas=2000 is not allowed: at most 1024"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}$"):
        run(requests((4, 1, 0)), **options)


def test_a_route_that_leads_nowhere_is_refused() -> None:
    class Lost:
        def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
            return Route(-1)

    with pytest.raises(ConfigError, match=r"^route=-1 is not allowed: there are replicas 0 to 1$"):
        run(requests((4, 1, 0)), router=lambda *_: Lost())


def test_each_replica_has_its_own_listeners() -> None:
    heard: list[list[AnyEvent]] = [[], []]
    batches: list[list[AnyEvent]] = [[], []]
    cluster = run(
        requests(*[(4, 9, 0)] * 5),
        emits=[events.append for events in heard],
        listeners=[[events.extend] for events in batches],
    )
    assert heard == batches == [replica.events for replica in cluster.replicas]
    with pytest.raises(ConfigError, match=r"^emits=1 is not allowed: one for each of 2 replicas is needed$"):
        run(requests((4, 1, 0)), emits=[print])


def test_an_id_that_comes_twice_is_refused_and_leaves_no_load_behind() -> None:
    load = [
        *requests((4, 9, 0), (4, 9, 0)),
        WorkloadRequest(id=0, prompt_len=5, max_tokens=7, arrival=1),
        WorkloadRequest(id="while the first runs", prompt_len=4, max_tokens=1, arrival=10),
    ]
    last = WorkloadRequest(id="last", prompt_len=4, max_tokens=1, arrival=500)
    shown: list[list[int]] = []

    class Watching(ToTheFirst):
        def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
            shown.append([view.outstanding_tokens for view in replicas])
            return super().route(request, replicas)

    cluster = run([*load, last], router=lambda *_: Watching())
    assert [(request, error.reason) for request, error in cluster.rejected] == [(0, "duplicate_id")]
    assert shown == [[0, 0], [13, 0], [26, 0], [18, 0], [0, 0]]


def test_arrivals_by_step_are_refused() -> None:
    load = [WorkloadRequest(id="a", prompt_len=4, max_tokens=1, arrival_step=3)]
    problem = "arrival_step=3 is not allowed: replicas have no steps in common: request 'a' must arrive in seconds"
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}$"):
        run(load)


def test_a_generator_is_read_as_time_goes_on() -> None:
    read: list[int] = []

    def load() -> Iterator[WorkloadRequest]:
        for index in range(20):
            read.append(index)
            yield WorkloadRequest(id=index, prompt_len=4, max_tokens=3, arrival=10.0 * index)

    ahead: list[int] = []

    def emit(event: AnyEvent) -> None:
        if isinstance(event, RequestAdded):
            ahead.append(len(read) - 1 - int(event.request))

    run(load(), record=False, emits=[emit] * 2)
    assert ahead == [1] * 19 + [0]
