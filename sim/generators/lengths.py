"""How long prompts and answers are: each function returns one that draws a length."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from nanovllm.checks import check_positive, check_whole_number, is_number
from nanovllm.errors import ConfigError

Length = Callable[[Random], int]
"""Draws a number of tokens, at least 1."""


def fixed(length: int) -> Length:
    """Always ``length`` tokens."""
    check_whole_number("length", length, 1)
    return lambda rng: length


def uniform(low: int, high: int) -> Length:
    """Any length from ``low`` to ``high``, both included, equally often."""
    check_whole_number("low", low, 1)
    check_whole_number("high", high, low)
    return lambda rng: rng.randint(low, high)


def lognormal(median: float, sigma: float, low: int = 1, high: int | None = None) -> Length:
    """Lengths whose logarithms are normal around that of ``median`` with standard deviation ``sigma``: mostly short,
    now and then very long, as people write. Cut to ``low`` and ``high``; the mean before is ``median`` times
    exp(sigma² / 2)."""
    check_positive("median", median)
    if not is_number(sigma) or sigma < 0:
        raise ConfigError("sigma", sigma, "a number from 0 upward")
    check_whole_number("low", low, 1)
    if high is not None:
        check_whole_number("high", high, low)
    location = math.log(median)

    def draw(rng: Random) -> int:
        length = max(low, round(rng.lognormvariate(location, sigma)))
        return length if high is None else min(high, length)

    return draw
