"""Checks of what callers choose, each with the one sentence that says what is allowed."""

from __future__ import annotations

import sys
from typing import TypeGuard

from nanovllm.errors import ConfigError


def whole_number_from(low: int) -> str:
    """What ``is_whole_number`` allows, in words."""
    return f"a whole number from {low} upward"


def is_whole_number(value: object, low: int) -> TypeGuard[int]:
    """Whether ``value`` is an int, no bool, and at least ``low``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is an int or float, no bool, and finite: an int that no float can hold is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_whole_number(name: str, value: object, low: int) -> None:
    """Raise ``ConfigError`` for anything else."""
    if not is_whole_number(value, low):
        raise ConfigError(name, value, whole_number_from(low))


def check_positive(name: str, value: float, what: str = "a number") -> None:
    """Raise ``ConfigError`` for anything but a finite number above 0."""
    if not is_number(value) or value <= 0:
        raise ConfigError(name, value, f"{what} above 0")
