"""The policy ``priority``: the most important request first."""

from __future__ import annotations

from nanovllm.engine.policies.ranked import RankedScheduler
from nanovllm.engine.sequence import Sequence


class PriorityScheduler(RankedScheduler):
    """Ranks by the ``priority`` that a request brings: the lower, the earlier. Ageing is in levels a step."""

    def _first_rank(self, seq: Sequence) -> float:
        return seq.priority
