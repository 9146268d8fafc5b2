"""Whoever measures a run and writes its trace while it goes on: hand ``observer.take`` to it as a listener."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from nanovllm.trace.events import AnyEvent
from nanovllm.trace.jsonl import TraceWriter
from nanovllm.trace.metrics import Metrics, summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.slo import Slo


class RunObserver:
    """Takes in the events of a run, some thousand at a time. A context manager: when it is left, the trace is whole."""

    def __init__(self, trace: str | Path | None = None, slo: Slo | None = None) -> None:
        """``trace``: the file to be written, if any. ``slo``: what requests are promised. Raises ``TraceError`` if the
        file cannot be written."""
        self._collector = MetricsCollector(slo=slo, keep_requests=False)
        self._writer = None if trace is None else TraceWriter(trace)

    def take(self, events: list[AnyEvent]) -> None:
        """Take in the next events."""
        self._write(events)  # first: what is written is there, whatever happens
        self._measure(events)

    def _write(self, events: list[AnyEvent]) -> None:
        if self._writer is not None:
            self._writer.emit_all(events)

    def _measure(self, events: list[AnyEvent]) -> None:
        self._collector.apply_all(events)

    def metrics(self) -> Metrics:
        """The figures of all that was taken in."""
        return summarize_run(self._collector)

    def __enter__(self) -> RunObserver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, traceback)
