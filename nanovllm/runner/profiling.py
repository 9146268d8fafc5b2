"""torch's profiler around a run, with one range a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.errors import TraceError
from nanovllm.trace.files.packed import check_writable

Annotate = Callable[[ScheduledBatch], AbstractContextManager[object]]


class Annotated(Protocol):
    """What can be profiled: a runner."""

    device: torch.device
    annotate: Annotate
    """Entered around the host's work for each step."""


@contextmanager
def profile_steps(runner: Annotated, step_index: Callable[[], int], path: str | Path) -> Iterator[None]:
    """Profile what ``runner`` does within the block, on the host and on a card, and write it to ``path`` as Chrome's
    JSON trace (compressed if the name ends in ``.gz``), also if the block is left by an exception.

    ``step_index``: the number of the step that is being submitted. The range of a step is around its submission and
    called, say, ``step 12 decode 256 seqs 256 tokens``; what it launches runs later, on the card's own tracks.

    Raises ``TraceError``, before anything is done, if the file cannot be written.
    """
    check_writable(path)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler's library talks of itself on standard error
    activities = [ProfilerActivity.CPU]
    if runner.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)

    def annotate(batch: ScheduledBatch) -> AbstractContextManager[object]:
        size = f"{len(batch.sequences)} seqs {batch.num_tokens} tokens"
        return record_function(f"step {step_index()} {batch.phase} {size}")

    unannotated, profiler = runner.annotate, profile(activities=activities, acc_events=True)
    try:
        with profiler:
            runner.annotate = annotate
            try:
                yield
            finally:
                runner.annotate = unannotated
                if runner.device.type == "cuda":
                    torch.cuda.synchronize(runner.device)  # what was submitted belongs to it
    finally:
        _export(profiler, path)


def _export(profiler: profile, path: str | Path) -> None:
    try:
        profiler.export_chrome_trace(str(path))
    except (OSError, RuntimeError) as error:
        raise TraceError(path, f"cannot be written: {error}") from None
