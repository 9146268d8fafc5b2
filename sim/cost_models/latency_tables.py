"""Latencies of a model's layers, measured elsewhere: files of the profiler of LLMServingSim 2.0.

A directory with

- ``table_meta.yaml``: what was measured on what, and how the skew table is read,
- ``table_dense.csv``: ``layer,tokens,time_us``,
- ``table_per_sequence.csv``: ``layer,sequences,time_us`` (the head and the sampler, once a step),
- ``table_attention.csv``: ``prefill_chunk,kv_prefill,n_decode,kv_decode,time_us``, with one chunk and decodes of equal
  length,
- ``table_skew_fit.csv``, if decodes of unequal length were measured: ``pc,n_label,skew_rate_label,kv_big_label,
  kp_label,alpha``.

The tables hold one layer of the model each. Source: https://github.com/casys-kaist/LLMServingSim
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from nanovllm.errors import CostTableError
from nanovllm.limited_reading import read_lines, read_whole
from sim.cost_models.interpolation import Line, Surface, weighted_sum
from sim.cost_models.skew import Skew

ONCE_A_STEP = ("embedding", "final_layernorm")
TIMES_A_LAYER: Mapping[str, int] = {
    "layernorm": 2,  # before the attention and before the MLP
    "qkv_proj": 1,
    "qk_norm": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
}
MAX_VALUE = 1e12
"""Of a count, or of a latency in µs: above, sums of times would leave what a float can hold."""
OPTIONAL_LAYERS = ("qk_norm",)
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""What the profiler calls a variant, if nothing was quantised."""


class LatencyTables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one model on one card, in seconds."""

    model: str
    gpu: str
    version: str
    """Of the engine whose kernels were measured."""
    dtype: str | None = None
    """Of weights and KV, as ``ModelSpec`` has it; None if it is none of those, or was not told."""
    step: Line
    """By tokens of the step: layers that run once."""
    layer: Line
    """By tokens of the step: all of a layer but its attention."""
    head: Line
    """By sequences of the step: the head and the sampler."""
    attention: Surface
    """Of one layer; by tokens of the prefill chunk, tokens before it, number of decodes, tokens of each."""
    skew: Skew
    """What unequal lengths of the decodes add."""


class _PerDegree(msgspec.Struct):
    alpha_default: float


class _SkewFit(msgspec.Struct):
    bucket_axes: dict[str, Any]
    per_tp: dict[int, _PerDegree]


class _Meta(msgspec.Struct):
    model: str
    gpu: str
    vllm_version: str
    variant: str = ""
    skew_fit: _SkewFit | None = None


def read_latency_tables(directory: str | Path) -> LatencyTables:
    """Read the tables of a directory. Raises ``CostTableError`` naming file, line, and what is wrong."""
    path = Path(directory)
    if not path.is_dir():
        raise CostTableError(path, "is no directory: one with table_meta.yaml and table_*.csv is needed")
    meta = _read_meta(path / "table_meta.yaml")
    step, layer = _read_dense(path / "table_dense.csv")
    return LatencyTables(
        model=meta.model,
        gpu=meta.gpu,
        version=f"vLLM {meta.vllm_version}",
        dtype=_DTYPES.get(meta.variant),
        step=step,
        layer=layer,
        head=_read_head(path / "table_per_sequence.csv"),
        attention=_read_attention(path / "table_attention.csv"),
        skew=_read_skew(path / "table_skew_fit.csv", meta.skew_fit),
    )


def _read_meta(path: Path) -> _Meta:
    try:
        return msgspec.yaml.decode(read_whole(path), type=_Meta)
    except OSError as error:
        raise CostTableError.unreadable(path, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CostTableError(path, f"is no description of latency tables ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _read_dense(path: Path) -> tuple[Line, Line]:
    lines = _read_lines(path, "tokens", (*ONCE_A_STEP, *TIMES_A_LAYER))
    once = weighted_sum((1, lines[name]) for name in ONCE_A_STEP)
    return once, weighted_sum((times, lines[name]) for name, times in TIMES_A_LAYER.items() if name in lines)


def _read_head(path: Path) -> Line:
    lines = _read_lines(path, "sequences", ("lm_head", "sampler"))
    return weighted_sum((1, line) for line in lines.values())


def _read_lines(path: Path, unit: str, layers: tuple[str, ...]) -> dict[str, Line]:
    """The lines of a table by the name of the layer; of all ``layers`` and no other."""
    points: dict[str, dict[float, float]] = {}
    for line, row in _rows(path, ("layer", unit, "time_us")):
        if row["layer"] not in layers:
            raise CostTableError(path, f"layer {row['layer']!r} is not known: one of {', '.join(layers)}", line)
        of_layer, x = points.setdefault(row["layer"], {}), _number(path, line, row, unit)
        if x in of_layer:
            raise CostTableError(path, f"layer {row['layer']!r} has two latencies for {row[unit]} {unit}", line)
        of_layer[x] = _number(path, line, row, "time_us") / 1e6
    for name in layers:
        if name not in points and name not in OPTIONAL_LAYERS:
            raise CostTableError(path, f"layer {name!r} is missing")
    return {name: Line(of_layer) for name, of_layer in points.items()}


def _read_attention(path: Path) -> Surface:
    axes = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    points: dict[tuple[float, ...], float] = {}
    for line, row in _rows(path, (*axes, "time_us")):
        chunk, kv_prefill, num_decodes, kv_decode = (_number(path, line, row, axis) for axis in axes)
        # From the number that shapes the time the most to the one whose knots lie closest.
        point = (num_decodes, chunk, kv_prefill, kv_decode)
        if point in points:
            raise CostTableError(path, "the same point stands further up already", line)
        points[point] = _number(path, line, row, "time_us") / 1e6
    return Surface(points)


def _read_skew(path: Path, fit: _SkewFit | None) -> Skew:
    if fit is None:
        return Skew(default=0.0)
    if 1 not in fit.per_tp:
        raise CostTableError(path.with_name("table_meta.yaml"), "skew_fit has no entry for one card")
    shares: dict[tuple[float, str, str, str, str], float] = {}
    if path.exists():
        labels = ("n_label", "skew_rate_label", "kv_big_label", "kp_label")
        for line, row in _rows(path, ("pc", *labels, "alpha")):
            num_decodes, rate, longest, prefix = (row[label] for label in labels)
            key = (_number(path, line, row, "pc"), num_decodes, rate, longest, prefix)
            shares[key] = _number(path, line, row, "alpha", low=-math.inf)
    return Skew.from_axes(fit.per_tp[1].alpha_default, shares, fit.bucket_axes, path)


# ---- rows ----------------------------------------------------------------------------------------------------


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their line numbers."""
    is_empty = True
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(read_lines(file))
            for column in columns:
                if column not in (reader.fieldnames or ()):
                    raise CostTableError(path, f"has no column {column!r}: the columns are {', '.join(columns)}", 1)
            for row in reader:
                is_empty = False
                if None in row or None in row.values():
                    raise CostTableError(path, f"has not {len(reader.fieldnames or ())} values", reader.line_num)
                yield reader.line_num, row
    except OSError as error:
        raise CostTableError.unreadable(path, error) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CostTableError(path, f"is no CSV file ({error})") from None
    if is_empty:
        raise CostTableError(path, "holds no measurement")


def _number(path: Path, line: int, row: Mapping[str, str], column: str, low: float = 0.0) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not low <= value < math.inf:
        allowed = "a number" if low < 0 else "a number from 0 upward"
        raise CostTableError(path, f"{column} is {row[column]!r}: {allowed} is needed", line)
    if abs(value) > MAX_VALUE:
        raise CostTableError(path, f"{column} is {row[column]!r}: at most {MAX_VALUE:.0f} is allowed", line)
    return value
