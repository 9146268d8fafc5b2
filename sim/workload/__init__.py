"""What comes in: the workload format, its files, and the way from there to the engine's requests."""

from sim.workload.files import iter_workload, read_workload, write_workload
from sim.workload.order import in_order_of_arrival
from sim.workload.request import WorkloadRequest
from sim.workload.requests import Prompts, to_requests

__all__ = [
    "Prompts",
    "WorkloadRequest",
    "in_order_of_arrival",
    "iter_workload",
    "read_workload",
    "to_requests",
    "write_workload",
]
