"""What a real run tells: what came, with which options, and when everybody had which token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanovllm.config import Config
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.metrics import request_metrics
from sim.workload import WorkloadRequest


@dataclass(frozen=True, kw_only=True)
class RealRun:
    """A run to predict."""

    path: Path
    requests: list[request_metrics.RequestMetrics]
    """What became of each request."""
    workload: list[WorkloadRequest]
    """The same requests in order of arrival, as the simulator takes them."""
    config: Config
    """The options, with the number of blocks that the run had; ``model`` empty if it is not known."""
    lookahead: bool
    """Whether the engine worked one step ahead of its card."""
    events: list[AnyEvent]
    """The trace; empty if only the requests' times are known."""
