"""Durations in words, and the unit of an axis that shows some."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Three digits, in the unit that suits them: ``12.3 ms``, ``2 s``."""
    if seconds >= 999.5 or seconds == 0:
        return f"{seconds:,.0f} s"
    for unit, unit_s in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * unit_s:  # less than that is less than 1 when rounded to three digits, too
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def unit_of(longest_s: float) -> tuple[str, float]:
    """The unit of an axis for durations up to this one, and its length in seconds."""
    return ("ms", 1e-3) if 0 < longest_s < 1 else ("s", 1.0)
