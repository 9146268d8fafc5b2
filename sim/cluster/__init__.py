"""Several replicas behind a router, on one virtual time: the same engine several times, and who gets which request."""

from sim.cluster.routers import Route, Router, RouterFactory
from sim.cluster.simulation import ROUTERS, ClusterResult, simulate_cluster
from sim.cluster.view import ReplicaView

__all__ = ["ROUTERS", "ClusterResult", "ReplicaView", "Route", "Router", "RouterFactory", "simulate_cluster"]
