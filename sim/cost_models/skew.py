"""What a decode batch of unequal lengths costs more than its mean length says."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from nanovllm.errors import CostTableError

Bucket = tuple[float, str, str, str, str]
"""Profiled prefill chunk, and the labels of number of decodes, skew rate, longest decode and prefix of the chunk."""

_AXES = ("n", "skew_rate", "kv_big", "kp")


class _Axis(msgspec.Struct, frozen=True):
    """Labels of intervals, each with its upper end (which belongs to it)."""

    ends: tuple[float, ...]
    labels: tuple[str, ...]

    def label(self, value: float) -> str:
        return self.labels[min(bisect_left(self.ends, value), len(self.labels) - 1)]


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """Attention over decodes of unequal length takes the time at their mean length, plus a share of the way to that at
    the longest one's length. The share was measured by buckets; ``default`` holds where no bucket was."""

    default: float
    shares: Mapping[Bucket, float] = {}
    axes: tuple[_Axis, ...] = ()
    chunks: tuple[float, ...] = ()
    """The prefill chunks that were measured."""

    @classmethod
    def from_axes(
        cls, default: float, shares: Mapping[Bucket, float], bucket_axes: Mapping[str, Any], path: Path
    ) -> Skew:
        """``bucket_axes``: for each axis its ``_bins`` (the ends of the intervals) and ``_labels``. Raises
        ``CostTableError``."""
        axes = []
        for name in _AXES:
            bins, labels = bucket_axes.get(f"{name}_bins"), bucket_axes.get(f"{name}_labels")
            if not isinstance(bins, list) or not isinstance(labels, list) or len(bins) != len(labels) + 1:
                problem = f"skew_fit needs {name}_bins and one label fewer in {name}_labels"
                raise CostTableError(path.with_name("table_meta.yaml"), problem)
            axes.append(_Axis(tuple(bins[1:]), tuple(labels)))
        chunks = tuple(sorted({bucket[0] for bucket in shares}))
        return cls(default=default, shares=shares, axes=tuple(axes), chunks=chunks)

    def share(self, chunk: float, prefix: float, num_decodes: int, shortest: int, mean: float, longest: int) -> float:
        """The share for a step with a prefill ``chunk`` after ``prefix`` tokens, and decodes of these lengths."""
        if not self.shares or longest == shortest:
            return self.default
        rate = (mean - shortest) / (longest - shortest)
        nearest = min(self.chunks, key=lambda measured: abs(measured - chunk))
        values = (num_decodes, rate, longest, prefix)
        decodes, skew_rate, kv_big, kp = (axis.label(value) for axis, value in zip(self.axes, values, strict=True))
        return self.shares.get((nearest, decodes, skew_rate, kv_big, kp), self.default)
