"""Several replicas on one virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nanovllm.engine.request import Request
from nanovllm.errors import ConfigError
from sim.cluster.replica import Replica
from sim.cluster.routers import Router


def run_cluster(replicas: Sequence[Replica], requests: Iterable[Request], router: Router) -> int:
    """Run until every request has ended. Returns how many tokens of prompts the router expected to be cached.

    ``requests`` come in the order of their arrival and are read no further than the time requires. Whatever falls on
    one moment happens in this order: results of steps become known, requests that arrive are routed, replicas decide
    their next steps, by index. Raises ``ConfigError`` for a request that comes by step: replicas have none in common.
    """
    views = [replica.view for replica in replicas]
    arrivals = iter(requests)
    head = next(arrivals, None)
    now_s, num_expected_tokens = 0.0, 0
    while True:
        times_s = [replica.next_turn_s for replica in replicas if replica.next_turn_s is not None]
        if head is not None:
            times_s.append(_arrival_s(head))
        if not times_s:
            return num_expected_tokens
        now_s = max(now_s, min(times_s))
        for replica in _due(replicas, now_s):
            replica.tell_result()
        while head is not None and _arrival_s(head) <= now_s:
            route = router.route(head, views)
            num_expected_tokens += route.num_cached_tokens
            replicas[route.replica].send(head, now_s, route.num_cached_tokens)
            head = next(arrivals, None)
        for replica in _due(replicas, now_s):
            replica.take_turn()


def _due(replicas: Sequence[Replica], now_s: float) -> list[Replica]:
    return [replica for replica in replicas if replica.next_turn_s is not None and replica.next_turn_s <= now_s]


def _arrival_s(request: Request) -> float:
    if request.arrival_step is not None:
        allowed = f"replicas have no steps in common: request {request.request_id!r} must arrive in seconds"
        raise ConfigError("arrival_step", request.arrival_step, allowed)
    return request.arrival_s
