"""Why a repeated block was not found in the cache, and why one was found that no earlier prompt held."""

from __future__ import annotations

from typing import Literal

Miss = Literal[
    "last_partial",
    "last_whole",
    "never_whole",
    "other_prefix",
    "not_computed",
    "evicted",
    "refused",
    "not_admitted",
]
"""Why a block that repeats one of an earlier prompt was not reused."""

Gain = Literal["answer", "later_arrival"]
"""Why a block was reused that repeats none of an earlier prompt."""

MISSES: dict[Miss, str] = {
    "last_partial": "the prompt ends within it: only whole blocks are kept",
    "last_whole": "the prompt ends with it: something must be left to compute",
    "never_whole": "every earlier prompt ended within it",
    "other_prefix": "in earlier prompts other blocks stood before it",
    "not_computed": "the earlier request was still waiting or computing",
    "evicted": "computed and kept, but evicted since",
    "refused": "its request, or each earlier one that held it, was refused",
    "not_admitted": "its request never came to run",
}
"""Each cause in words. A block that could have several has the first of them, in this order but for the last two, which
go before all others."""

GAINS: dict[Gain, str] = {
    "answer": "it holds what was answered before",
    "later_arrival": "a request that came later was computed before",
}
