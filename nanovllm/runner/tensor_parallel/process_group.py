"""The ``Group`` of ranks in processes of their own: NCCL among cards, gloo on a CPU.

torch's process groups are used by themselves: the default group that ``torch.distributed`` keeps is one for the whole
process, and two engines may live in one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions

_HOST = "127.0.0.1"
_CONNECTING = timedelta(seconds=60)
"""All ranks are about to connect when the first one does."""
_ABORTING_S = 10.0


class Meeting:
    """Where ranks find each other: a port of this machine that nobody else has. Held by rank 0."""

    def __init__(self, size: int) -> None:
        """``size``: ranks."""
        with socket.socket() as listener:
            listener.bind((_HOST, 0))
            listener.listen()
            self.port: int = listener.getsockname()[1]
            self.store = dist.TCPStore(
                _HOST,
                self.port,
                size,
                is_master=True,
                timeout=_CONNECTING,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )


def join(port: int, size: int) -> dist.Store:
    """What rank 0 opened as a ``Meeting``, for another rank."""
    return dist.TCPStore(_HOST, port, size, is_master=False, timeout=_CONNECTING, wait_for_workers=False)


class ProcessGroup:
    """See ``Group``."""

    def __init__(self, store: dist.Store, rank: int, size: int, device: torch.device) -> None:
        """Wait for all ranks; ``device`` is where this one computes."""
        self.rank = rank
        self.size = size
        self._releases: list[WeakMethod[Callable[[], object]]] = []
        self._aborting: threading.Thread | None = None
        self._has_cards = device.type == "cuda"
        if self._has_cards:
            self._backend: Any = dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())
        else:
            self._backend = dist.ProcessGroupGloo(store, rank, size, timedelta(days=1))
        # The first call connects; later ones are to take no memory and no time for that.
        self.all_reduce(torch.zeros(1, device=device))

    def all_reduce(self, x: Tensor) -> Tensor:
        """See ``Group``."""
        options = AllreduceOptions()
        options.asyncOp = False
        _finish(self._backend.allreduce([x], options))
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        """See ``Group``."""
        gathered = x.new_empty(self.size, *x.shape)
        options = AllgatherOptions()
        options.asyncOp = False
        _finish(self._backend._allgather_base(gathered.flatten(), x.flatten(), options))
        return gathered

    def before_abort(self, release: Callable[[], object]) -> None:
        """See ``Group``."""
        self._releases.append(WeakMethod(release))

    def abort(self) -> None:
        """End what is under way and give the connections back, whatever the other ranks do. May be called from any
        thread, and again."""
        if self._has_cards and self._aborting is None:
            # In a thread, since nobody should wait forever for a card that does not answer any more.
            self._aborting = threading.Thread(target=self._backend.abort, daemon=True)
            self._aborting.start()
        # NCCL now ends what is under way, then waits for these.
        for reference in self._releases:
            release = reference()
            if release is not None:
                release()
        self._releases.clear()
        if self._aborting is not None:  # gloo's connections end with the processes at their other ends
            self._aborting.join(_ABORTING_S)


def _finish(work: Any) -> None:
    """Wait for a call, on a card in its queue; None: it is queued already."""
    if work is not None:
        work.wait()
