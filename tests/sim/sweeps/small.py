"""Sweeps of a few milliseconds a cell."""

from __future__ import annotations

from typing import Any

from sim.sweeps import Sweep

SETTINGS: dict[str, Any] = {
    "num_requests": 8,
    "prompt_len": "uniform:4,20",
    "output_len": "uniform:2,8",
    "kvcache_block_size": 4,
    "num_kvcache_blocks": 40,
    "rate": 100,
}
VARY: dict[str, list[Any]] = {"policy": ["prefill_first", "mixed"], "max_num_seqs": [2, 4, 8]}


def small_sweep(**changes: Any) -> Sweep:
    """Six cells; ``changes``: other settings, or lists of values to vary."""
    lists = {name: value for name, value in changes.items() if isinstance(value, list)}
    settings = {**SETTINGS, **{name: value for name, value in changes.items() if name not in lists}}
    return Sweep(settings={name: settings[name] for name in settings if name not in lists}, vary={**VARY, **lists})
