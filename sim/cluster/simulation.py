"""One call from a workload to what several replicas behind a router would do with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nanovllm.checks import check_whole_number
from nanovllm.config import Config
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import ConfigError, RequestError
from nanovllm.model_spec import ModelSpec
from nanovllm.own_classes import check_name, import_class
from nanovllm.trace.events import AnyEvent, Emit, RequestId
from nanovllm.trace.recorder import Batches, EmitAll, tee
from sim.cluster.cluster import run_cluster
from sim.cluster.prefix_aware import PrefixAware
from sim.cluster.replica import Replica
from sim.cluster.routers import LeastLoaded, RoundRobin, RouterFactory
from sim.cost_models import CostModel
from sim.engine_setup import Setup, set_up
from sim.hardware import GPU
from sim.simulation import SimulationResult, collector_paused, pass_on
from sim.workload import WorkloadRequest
from sim.workload.requests import Tokenize

if TYPE_CHECKING:
    from nanovllm.trace.metrics import Metrics

MAX_REPLICAS = 1024
ROUTERS: dict[str, RouterFactory] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "prefix_aware": PrefixAware,
}
"""By the names that options have for them."""


@dataclass(frozen=True, kw_only=True)
class ClusterResult:
    """What a simulation of several replicas tells."""

    replicas: list[SimulationResult]
    """By index; each tells of its own part. ``time_s``: when it did its last step."""
    expected_hit_tokens: int
    """Prompt tokens that the router expected to be cached where it sent them."""
    load_imbalance: float
    """How many times the average load the fullest replica had, seen by the requests that arrived: see
    ``sim.cluster.cluster.RoutingTotals``."""
    time_s: float
    """Virtual time at the end."""
    loop_time_s: float
    """Real time that the simulation took, without setting it up."""

    @property
    def rejected(self) -> list[tuple[RequestId, RequestError]]:
        """The requests that could never run, and why."""
        return [rejection for replica in self.replicas for rejection in replica.rejected]

    @property
    def num_steps(self) -> int:
        """Of all replicas."""
        return sum(replica.num_steps for replica in self.replicas)

    @property
    def num_extrapolated_steps(self) -> int:
        """Of all replicas."""
        return sum(replica.num_extrapolated_steps for replica in self.replicas)

    @cached_property
    def metrics(self) -> Metrics:
        """Of all requests together, see ``nanovllm.trace.metrics.merged``. Raises ``ConfigError`` if the events were
        not recorded."""
        from nanovllm.trace.metrics.merged import merge_runs

        if not all(replica.events for replica in self.replicas):
            raise ConfigError("record", False, "metrics are made from the recorded events")
        return merge_runs(replica.events for replica in self.replicas)


def simulate_cluster(
    config: Config,
    workload: str | Path | Iterable[WorkloadRequest],
    *,
    num_replicas: int,
    router: str | RouterFactory = "round_robin",
    gpu: str | GPU | None = None,
    model: str | ModelSpec | None = None,
    cost_model: CostModel | None = None,
    tokenize: Tokenize | None = None,
    scheduler: type[Scheduler] | None = None,
    record: bool = True,
    emits: Sequence[Emit] | None = None,
    listeners: Sequence[Iterable[EmitAll]] | None = None,
) -> ClusterResult:
    """Run ``workload`` on ``num_replicas`` equal engines, each on its own modelled GPU (or
    ``config.tensor_parallel_size`` of them), behind a router.

    ``router``: a name of ``ROUTERS``, one's own class as ``module:Class``, or what makes one. ``emits`` has for each
    replica one that is called with each of its events, ``listeners`` some that are called with some thousand at a time,
    which is faster. The other arguments are those of ``sim.simulate``, which does the same with one replica. Requests
    must arrive in seconds, not by steps. Same arguments, same events.

    Raises ``UserError`` for what cannot be used; a request that can never run is in ``rejected``.
    """
    check_whole_number("replicas", num_replicas, 1, MAX_REPLICAS)
    make_router = find_router(router) if isinstance(router, str) else router
    for name, given in (("emits", emits), ("listeners", listeners)):
        if given is not None and len(given) != num_replicas:
            raise ConfigError(name, len(given), f"one for each of {num_replicas} replicas is needed")
    setup = set_up(config, gpu=gpu, model=model, cost_model=cost_model)
    traces: list[list[AnyEvent]] = [[] for _ in range(num_replicas)]
    replicas = [
        _make_replica(
            setup,
            scheduler,
            [events.append if record else None, None if emits is None else emits[index]],
            () if listeners is None else listeners[index],
        )
        for index, events in enumerate(traces)
    ]
    requests = setup.requests(workload, tokenize)

    start_s = time.perf_counter()
    try:
        with collector_paused():
            totals = run_cluster(replicas, requests, make_router(setup.config, num_replicas))
    finally:
        for replica in replicas:
            pass_on(replica.batches)
    loop_time_s = time.perf_counter() - start_s
    results = [_result(replica, events, loop_time_s) for replica, events in zip(replicas, traces, strict=True)]
    return ClusterResult(
        replicas=results,
        expected_hit_tokens=totals.expected_hit_tokens,
        load_imbalance=totals.load_imbalance,
        time_s=max(result.time_s for result in results),
        loop_time_s=loop_time_s,
    )


def find_router(name: str) -> RouterFactory:
    """What makes the router of this name, one of ``ROUTERS`` or ``module:Class``. Raises ``ConfigError``."""
    check_name("router", name, ROUTERS)
    if name in ROUTERS:
        return ROUTERS[name]
    found = import_class("router", name)
    if not callable(getattr(found, "route", None)):
        raise ConfigError("router", name, "a class with a method route is needed, see sim.cluster.Router")
    return found


def _make_replica(
    setup: Setup, scheduler: type[Scheduler] | None, emits: Sequence[Emit | None], listeners: Iterable[EmitAll]
) -> Replica:
    listeners = tuple(listeners)
    batches = Batches(listeners)
    listening = [emit for emit in (*emits, batches.emit if listeners else None) if emit is not None]
    return Replica(setup.make_engine(tee(*listening) if listening else None, scheduler), batches)


def _result(replica: Replica, events: list[AnyEvent], loop_time_s: float) -> SimulationResult:
    engine, backend, clock = replica.simulated
    engine.close()
    return SimulationResult(
        events=events,
        rejected=engine.rejected,
        facts=engine.facts,
        num_steps=replica.num_steps,
        num_extrapolated_steps=backend.num_extrapolated_steps,
        time_s=clock.now(),
        time_spent=backend.time_spent,
        loop_time_s=loop_time_s,
    )
