"""The end of a group: NCCL waits for the CUDA graphs that use a connection, so they have to go while it does."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist

from nanovllm.runner.graphs import Graphs
from nanovllm.runner.tensor_parallel.process_group import ProcessGroup


class FakeGraph:
    def __init__(self, recorded: set[FakeGraph]) -> None:
        self._recorded = recorded
        recorded.add(self)

    def reset(self) -> None:
        self._recorded.remove(self)


class FakeNccl:
    """Its ``abort`` takes as long as there are graphs."""

    Options = staticmethod(lambda: None)
    graphs: set[FakeGraph]

    def __init__(self, *_: object) -> None:
        self.graphs = set()
        self.are_gone = threading.Event()

    def allreduce(self, *_: object) -> None:
        """Connects."""

    def abort(self) -> None:
        assert self.are_gone.wait(60), "the graphs are still there"


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ProcessGroup:
    monkeypatch.setattr(dist, "ProcessGroupNCCL", FakeNccl, raising=False)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: torch.empty(0))
    return ProcessGroup(dist.HashStore(), 0, 2, torch.device("cuda"))


class Recorded:
    """What records graphs, with ``Graphs.release``."""

    def __init__(self, nccl: FakeNccl) -> None:
        self._nccl = nccl
        self.graphs: Graphs[int] = Graphs.__new__(Graphs)
        kinds = {kind: type("Recorded", (), {"graph": FakeGraph(nccl.graphs)})() for kind in range(3)}
        self.graphs._graphs = kinds

    def release(self) -> None:
        self.graphs.release()
        if not self._nccl.graphs:
            self._nccl.are_gone.set()


def test_graphs_go_while_connections_end_whoever_still_knows_them(group: ProcessGroup) -> None:
    nccl = group._backend
    first, second = Recorded(nccl), Recorded(nccl)
    group.before_abort(first.release)
    group.before_abort(second.release)
    group.abort()
    assert not nccl.graphs
    assert group._aborting is not None
    assert not group._aborting.is_alive()
    group.abort()  # again: nothing


def test_what_is_gone_already_is_not_kept_for_the_end(group: ProcessGroup) -> None:
    recorded = Recorded(group._backend)
    group.before_abort(recorded.release)
    recorded.release()
    del recorded
    group.abort()
    assert group._aborting is not None
    assert not group._aborting.is_alive()
