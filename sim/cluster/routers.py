"""Who gets a request: the protocol of routers, and those that look at loads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from nanovllm.config import Config
from nanovllm.engine.request import Request
from sim.cluster.view import ReplicaView


class Route(NamedTuple):
    """Where a request goes, and how many tokens of its prompt the router expects to be cached there."""

    replica: int
    num_cached_tokens: int = 0


class Router(Protocol):
    """Decides on each request when it arrives. Replicas are told by their index."""

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        """Choose one of ``replicas``, which look as they do at this moment. The request is sent there."""
        ...


RouterFactory = Callable[[Config, int], Router]
"""Makes a router from the options of an engine (with its number of KV blocks) and the number of replicas."""


class RoundRobin:
    """One after the other, whatever they do: equal numbers of requests, not equal work."""

    def __init__(self, config: Config, num_replicas: int) -> None:
        self._num_routed = 0

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        """See ``Router``."""
        index = self._num_routed % len(replicas)
        self._num_routed += 1
        return Route(index)


class LeastLoaded:
    """The replica with the fewest outstanding tokens; of equals, the one that got its last request longest ago."""

    def __init__(self, config: Config, num_replicas: int) -> None:
        pass

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        """See ``Router``."""

        def load(replica: int) -> tuple[int, float]:
            return replicas[replica].outstanding_tokens, replicas[replica].last_sent_s

        return Route(min(range(len(replicas)), key=load))
