"""Several replicas on one virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nanovllm.engine.arrivals import Arrivals
from nanovllm.engine.request import Request
from nanovllm.errors import ConfigError
from sim.cluster.replica import Replica
from sim.cluster.routers import Route, Router
from sim.cluster.view import ReplicaView


@dataclass
class RoutingTotals:
    """Summed over all requests, each at the moment at which it was routed."""

    expected_hit_tokens: int = 0
    """Prompt tokens that the router expected to be cached where it sent them."""
    fullest_tokens: int = 0
    """Outstanding tokens of the replica with the most of them."""
    mean_tokens: float = 0.0
    """Outstanding tokens of a replica, on average."""

    @property
    def load_imbalance(self) -> float:
        """How much more than the average the fullest replica had to do: 1 if all had the same, their number if one had
        everything. 1 also where nothing was ever outstanding."""
        return self.fullest_tokens / self.mean_tokens if self.mean_tokens else 1.0

    def note(self, views: Sequence[ReplicaView], route: Route) -> None:
        """Take in a request that is about to be sent."""
        self.expected_hit_tokens += route.num_cached_tokens
        loads = [view.outstanding_tokens for view in views]
        self.fullest_tokens += max(loads)
        self.mean_tokens += sum(loads) / len(loads)


def run_cluster(replicas: Sequence[Replica], requests: Iterable[Request], router: Router) -> RoutingTotals:
    """Run until every request has ended.

    ``requests`` come in the order of their arrival and are read no further than the time requires; they may wait for
    each other as those of ``Engine.run`` do, whichever replica has them. Whatever falls on one moment happens in this
    order: results of steps become known, requests that arrive are routed, replicas decide their next steps, by index.
    Raises ``ConfigError`` for a request that comes by step (replicas have none in common), or a route that leads
    nowhere.
    """
    arrivals = Arrivals(requests)
    now_s, totals = 0.0, RoutingTotals()
    while True:
        times_s = [replica.next_turn_s for replica in replicas if replica.next_turn_s is not None]
        if (head := arrivals.head) is not None:
            times_s.append(_arrival_s(head))
        if not times_s:
            assert not arrivals.num_awaited, "a request waits for one that is not there"
            return totals
        now_s = max(now_s, min(times_s))
        for replica in _due(replicas, now_s):
            replica.tell_result(arrivals)
        _route_those_due(arrivals, now_s, replicas, router, totals)
        for replica in _due(replicas, now_s):
            replica.take_turn(arrivals)


def _route_those_due(
    arrivals: Arrivals, now_s: float, replicas: Sequence[Replica], router: Router, totals: RoutingTotals
) -> None:
    views = [replica.view for replica in replicas]
    for request in arrivals.pop_while(lambda request: _arrival_s(request) <= now_s):
        route = router.route(request, views)
        if not 0 <= route.replica < len(replicas):
            raise ConfigError("route", route.replica, f"there are replicas 0 to {len(replicas) - 1}")
        totals.note(views, route)
        replicas[route.replica].send(request, now_s, route.num_cached_tokens)


def _due(replicas: Sequence[Replica], now_s: float) -> list[Replica]:
    return [replica for replica in replicas if replica.next_turn_s is not None and replica.next_turn_s <= now_s]


def _arrival_s(request: Request) -> float:
    if request.arrival_step is not None:
        allowed = f"replicas have no steps in common: request {request.request_id!r} must arrive in seconds"
        raise ConfigError("arrival_step", request.arrival_step, allowed)
    return request.arrival_s
