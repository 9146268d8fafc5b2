"""How many simulations can run side by side."""

from __future__ import annotations

import os


def num_processors() -> int:
    """Of this machine, those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
