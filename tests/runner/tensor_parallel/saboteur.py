"""A worker in which something goes wrong: what, says the environment variable ``SABOTAGE``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch

from nanovllm.models.decoder import Decoder
from nanovllm.runner import rank
from nanovllm.runner.tensor_parallel import worker

NUM_GOOD_CALLS = 4


def _raise(error: Exception) -> None:
    raise error


def _stand_still() -> None:
    time.sleep(1000)


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


DEEDS: dict[str, Callable[[], None]] = {
    "a bug in a step": lambda: _raise(RuntimeError("a bug\nand more")),
    "no memory in a step": lambda: _raise(torch.OutOfMemoryError("CUDA out of memory.\nDetails")),
    "standing still": _stand_still,
    "killed in a step": _kill_self,
}


def main(descriptor: int) -> None:
    """As the real one."""
    sabotage = os.environ["SABOTAGE"]
    if sabotage in DEEDS:
        Decoder.forward = _spoilt(Decoder.forward, DEEDS[sabotage])  # type: ignore[method-assign]
    elif sabotage == "no memory before a step":
        rank.activation_bytes = _spoilt(rank.activation_bytes, lambda: _raise(torch.OutOfMemoryError("No memory.")), 1)
    elif sabotage == "no memory for weights":
        rank.memory_bytes = lambda device: 1
    elif sabotage == "few blocks":
        rank.Rank.count_kv_blocks = lambda self: 17  # type: ignore[method-assign]
    else:
        assert sabotage == "ending at once"
        os._exit(3)
    worker.main(descriptor)


def _spoilt(function: Callable[..., Any], deed: Callable[[], None], num_bad_calls: int = 1000) -> Callable[..., Any]:
    num_calls = 0

    def spoilt(*args: Any, **options: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if NUM_GOOD_CALLS < num_calls <= NUM_GOOD_CALLS + num_bad_calls:
            deed()
        return function(*args, **options)

    return spoilt
