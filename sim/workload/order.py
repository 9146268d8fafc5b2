"""The order in which a workload is run."""

from __future__ import annotations

from collections.abc import Iterable

from nanovllm.errors import ConfigError
from nanovllm.trace.events import RequestId
from sim.workload.request import WorkloadRequest


class Order:
    """Gives each request of a workload its moment: what it is sorted by.

    That is its arrival, in seconds or steps. One that waits for others has the latest moment of theirs, and so comes
    right behind them, where the engine knows of it before any of them can have ended (see
    ``nanovllm.engine.arrivals``).
    """

    def __init__(self) -> None:
        self._moments: dict[RequestId, float] = {}

    def moment(self, request: WorkloadRequest) -> float:
        """The moment of the next request. Raises ``ConfigError`` if it waits for one that does not stand before it, or
        that arrives by step: there is no second at which it ends."""
        if request.arrival_step is not None:
            return request.arrival_step
        if unknown := [awaited for awaited in request.after if awaited not in self._moments]:
            raise ConfigError("after", unknown[0], "the id of a request that stands before it and arrives in seconds")
        awaited_moments = [self._moments[awaited] for awaited in request.after]
        moment = max(awaited_moments) if awaited_moments else request.arrival or 0.0
        self._moments[request.id] = moment
        return moment


def in_order_of_arrival(requests: Iterable[WorkloadRequest]) -> list[WorkloadRequest]:
    """Sorted by arrival, those that wait for others right behind the last of them; those that arrive together keep
    their order. Raises ``ConfigError`` as ``Order.moment`` does."""
    order = Order()
    moments = [(order.moment(request), place, request) for place, request in enumerate(requests)]
    return [request for _, _, request in sorted(moments)]
