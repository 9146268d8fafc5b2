"""How well a run went: figures of the whole (``run_metrics``), of each request (``request_metrics``), of several runs
taken as one (``merged``), of its steps (``step_times``), and what of it keeps what requests are promised (``slo``)."""

from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.run_metrics import Metrics, compute_metrics, summarize_run

__all__ = ["Metrics", "MetricsCollector", "compute_metrics", "summarize_run"]
