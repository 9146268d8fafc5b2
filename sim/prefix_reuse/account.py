"""The account of a prefix cache: which blocks could have been reused, which were, and what became of the others."""

from __future__ import annotations

from dataclasses import dataclass

from sim.prefix_reuse.causes import Gain, Miss


@dataclass(frozen=True, kw_only=True)
class ReuseAccount:
    """Blocks of all prompts of a run, counted where requests were first admitted. A prompt's last block counts as one,
    however many tokens are in it.

    ``num_hits`` = ``num_repeats`` - all ``misses`` + all ``gains``.
    """

    num_blocks: int
    """Blocks in the KV pool."""
    num_requests: int
    num_prompt_blocks: int
    num_repeats: int
    """Prompt blocks that an earlier prompt, or the same one, held before: what an endless cache could know if each
    prompt were computed as it comes, last blocks could be reused and content alone decided."""
    num_hits: int
    """Prompt blocks that were found in the cache."""
    misses: dict[Miss, int]
    """Repeats that were not found, by cause; see ``MISSES``. Causes that did not occur are left out."""
    gains: dict[Gain, int]
    """Hits that are no repeats, by cause; see ``GAINS``."""
    time_s: float
    """Virtual time at the end."""
    loop_time_s: float
    """Real time that the simulation took."""

    def __post_init__(self) -> None:
        found = self.num_repeats - sum(self.misses.values()) + sum(self.gains.values())
        assert found == self.num_hits, f"{found} hits are accounted for, there were {self.num_hits}"

    @property
    def repeat_rate(self) -> float:
        """Share of the prompt blocks that are repeats."""
        return self.num_repeats / self.num_prompt_blocks if self.num_prompt_blocks else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the prompt blocks that were found in the cache."""
        return self.num_hits / self.num_prompt_blocks if self.num_prompt_blocks else 0.0
