"""The policy ``shortest_first``: the shortest prompt first."""

from __future__ import annotations

from nanovllm.engine.policies.ranked import RankedScheduler
from nanovllm.engine.sequence import Sequence


class ShortestFirstScheduler(RankedScheduler):
    """Ranks by the length of the prompt: what is known of the work before it is done. Ageing is in tokens a step."""

    def _first_rank(self, seq: Sequence) -> float:
        return seq.num_prompt_tokens
