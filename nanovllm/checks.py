"""Checks of what callers choose, each with the one sentence that says what is allowed."""

from __future__ import annotations

import sys
from typing import TypeGuard

from nanovllm.errors import ConfigError

MAX_WHOLE_NUMBER = 2**63 - 1
"""No count, index or id is larger: files, traces and tensors have 64 bits for it."""
MAX_TOKEN_ID = 2**32 - 1
"""Token ids are hashed as unsigned 32-bit numbers."""
MAX_SEED = 2**64 - 1
"""What torch's generators take."""


def whole_number_from(low: int) -> str:
    """What ``is_whole_number`` allows, in words."""
    return f"a whole number from {low} upward"


def is_whole_number(value: object, low: int, high: int = MAX_WHOLE_NUMBER) -> TypeGuard[int]:
    """Whether ``value`` is an int, no bool, from ``low`` to ``high``."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is an int or float, no bool, and finite: an int that no float can hold is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can tell the text: names of files in another encoding have bytes in them that it cannot."""
    return text.encode("utf-8", "replace").decode("utf-8") == text


def check_whole_number(
    name: str, value: object, low: int, high: int = MAX_WHOLE_NUMBER, *, allowed: str | None = None
) -> None:
    """Raise ``ConfigError`` for anything but a whole number from ``low`` to ``high``.

    ``allowed``: what is, in other words than ``whole_number_from``; the upper end is told to those who meet it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(name, value, whole_number_from(low) if allowed is None else allowed)
    if value > high:
        raise ConfigError(name, value, f"at most {high}")


def check_positive(name: str, value: float, what: str = "a number") -> None:
    """Raise ``ConfigError`` for anything but a finite number above 0."""
    if not is_number(value) or value <= 0:
        raise ConfigError(name, value, f"{what} above 0")


def check_seconds(name: str, value: object) -> None:
    """Raise ``ConfigError`` for anything but a finite number from 0 upward."""
    if not is_number(value) or value < 0:
        raise ConfigError(name, value, "a number of seconds from 0 upward")
