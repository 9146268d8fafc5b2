"""How long prompts and answers are: each function returns one that draws a length."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from nanovllm.checks import check_positive, check_whole_number, is_number
from nanovllm.errors import ConfigError
from sim.token_ids import MAX_DRAWN_TOKENS

Length = Callable[[Random], int]
"""Draws a number of tokens, from 1 to ``MAX_DRAWN_TOKENS``."""


def fixed(length: int) -> Length:
    """Always ``length`` tokens."""
    check_whole_number("length", length, 1, MAX_DRAWN_TOKENS)
    return lambda rng: length


def uniform(low: int, high: int) -> Length:
    """Any length from ``low`` to ``high``, both included, equally often."""
    check_whole_number("low", low, 1)
    check_whole_number("high", high, low, MAX_DRAWN_TOKENS)
    return lambda rng: rng.randint(low, high)


def lognormal(median: float, sigma: float, low: int = 1, high: int = MAX_DRAWN_TOKENS) -> Length:
    """Lengths whose logarithms are normal around that of ``median`` with standard deviation ``sigma``: mostly short,
    now and then very long, as people write. Cut to ``low`` and ``high``; the mean before is ``median`` times
    exp(sigma² / 2)."""
    check_positive("median", median)
    if not is_number(sigma) or sigma < 0:
        raise ConfigError("sigma", sigma, "a number from 0 upward")
    check_whole_number("low", low, 1, MAX_DRAWN_TOKENS)
    check_whole_number("high", high, low, MAX_DRAWN_TOKENS)
    location, longest = math.log(median), math.log(high)
    return lambda rng: max(low, round(math.exp(min(longest, rng.normalvariate(location, sigma)))))
