"""Policies that rank requests: the mixed policy, but for who comes first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heappop, heappush

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.policies.mixed import MixedScheduler
from nanovllm.engine.sequence import Sequence, SequenceStatus
from nanovllm.trace.events import Emit

Rank = tuple[float, int]


class RankedScheduler(MixedScheduler, ABC):
    """Admits the request of the lowest rank and preempts that of the highest; equal ones are ranked by arrival.

    Ageing: with every step that passes, a request's rank falls by ``ageing``, whether it waits or runs. As all fall by
    the same, who comes before whom never changes, and is known on arrival: a request that comes a step later starts
    ``ageing`` higher. So no queue is ever sorted anew, and if ageing is above 0, only so many later ones can overtake.
    """

    def __init__(self, config: Config, emit: Emit | None = None) -> None:
        super().__init__(config, emit)
        self._ageing = config.ageing_per_step
        self._num_steps = 0
        self._num_added = 0
        self._ranks: dict[Sequence, Rank] = {}
        self._queue: list[tuple[Rank, Sequence]] = []
        """A heap of those that wait; of others too, that have ended meanwhile."""

    @abstractmethod
    def _first_rank(self, seq: Sequence) -> float:
        """The rank of a request on its arrival; the lower, the earlier."""

    # ---- decisions -------------------------------------------------------------------------------------------

    def schedule(self) -> ScheduledBatch:
        """See ``Scheduler.schedule``."""
        self._num_steps += 1
        return super().schedule()

    def _in_order(self, seqs: Iterable[Sequence]) -> list[Sequence]:
        return sorted(seqs, key=self._ranks.__getitem__)

    def _next_waiting(self) -> Sequence:
        queue = self._queue
        while queue[0][1].status is not SequenceStatus.WAITING:
            heappop(queue)
        return queue[0][1]

    # ---- transitions -----------------------------------------------------------------------------------------

    def add(self, seq: Sequence, time_s: float = 0.0, arrival_s: float | None = None) -> None:
        """See ``Scheduler.add``."""
        super().add(seq, time_s, arrival_s)
        self._num_added += 1
        rank = self._ranks[seq] = self._first_rank(seq) + self._ageing * self._num_steps, self._num_added
        heappush(self._queue, (rank, seq))

    def preempt(self, seq: Sequence, for_seq: Sequence | None = None) -> None:
        """See ``Scheduler.preempt``. The sequence keeps its rank."""
        super().preempt(seq, for_seq)
        heappush(self._queue, (self._ranks[seq], seq))

    def _admit(self, seq: Sequence) -> None:
        heappop(self._queue)
        super()._admit(seq)

    def finish(self, seq: Sequence, reason: str, time_s: float = 0.0) -> None:
        """See ``Scheduler.finish``."""
        super().finish(seq, reason, time_s)
        del self._ranks[seq]
