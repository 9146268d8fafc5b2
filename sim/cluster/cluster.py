"""Several replicas on one virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    ``requests`` come in the order of their arrival and are read no further than the time requires. Whatever falls on
    one moment happens in this order: results of steps become known, requests that arrive are routed, replicas decide
    their next steps, by index. Raises ``ConfigError`` for a request that comes by step (replicas have none in common),
    or a route that leads nowhere.
    """
    views = [replica.view for replica in replicas]
    arrivals = iter(requests)
    head = next(arrivals, None)
    now_s, totals = 0.0, RoutingTotals()
    while True:
        times_s = [replica.next_turn_s for replica in replicas if replica.next_turn_s is not None]
        if head is not None:
            times_s.append(_arrival_s(head))
        if not times_s:
            return totals
        now_s = max(now_s, min(times_s))
        for replica in _due(replicas, now_s):
            replica.tell_result()
        while head is not None and _arrival_s(head) <= now_s:
            route = router.route(head, views)
            if not 0 <= route.replica < len(replicas):
                raise ConfigError("route", route.replica, f"there are replicas 0 to {len(replicas) - 1}")
            totals.note(views, route)
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
