"""Steps between being handed over and being over, and how long they take."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor

from nanovllm.engine.backend import StepTimes

Tell = Callable[[StepTimes], object]


class CardStep:
    """The ``PendingStep`` of a card. Its sampled tokens are copied to the host as soon as they are there; by then its
    two events have passed too, so that to read them costs no waiting."""

    def __init__(self, tell: Tell) -> None:
        """The host begins with the step now. ``tell`` hears of its times, when its tokens are there."""
        self._tell = tell
        self._begun_s = perf_counter()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        """What is handed to the current stream from now on computes the step."""
        self._start.record()

    def send(self, tokens: Tensor) -> None:
        """``tokens``: ``[num_seqs]`` on the card, computed by work that is already submitted to the current stream."""
        self._on_host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        self._on_host.copy_(tokens, non_blocking=True)
        self._end.record()
        self._submitting_s = perf_counter() - self._begun_s

    def is_over(self) -> bool:
        """Whether the tokens are there."""
        return self._end.query()

    def result(self) -> list[int]:
        """Wait for the tokens."""
        self._end.synchronize()
        arrived_s = perf_counter()
        token_ids: list[int] = self._on_host.tolist()
        device_s = self._start.elapsed_time(self._end) / 1e3
        self._tell(StepTimes(self._submitting_s + (perf_counter() - arrived_s), device_s))
        return token_ids


class CpuStep:
    """The same on a CPU, where a step is over when it has been submitted."""

    def __init__(self, tell: Tell) -> None:
        """See ``CardStep``."""
        self._tell = tell
        self._begun_s = perf_counter()

    def start(self) -> None:
        """What is called from now on computes the step."""
        self._started_s = perf_counter()

    def send(self, tokens: Tensor) -> None:
        """``tokens``: ``[num_seqs]``."""
        self._ended_s = perf_counter()
        self._tokens = tokens

    def is_over(self) -> bool:
        """See ``CardStep``."""
        return True

    def result(self) -> list[int]:
        """See ``CardStep``."""
        token_ids: list[int] = self._tokens.tolist()
        device_s = self._ended_s - self._started_s
        self._tell(StepTimes(perf_counter() - self._begun_s - device_s, device_s))
        return token_ids
