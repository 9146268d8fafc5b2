"""How each attention kernel is cut into programs: the one place to look at when a card is to be made faster.

The defaults were measured on an NVIDIA H200 (132 multiprocessors) with 16 query heads, 8 KV heads of 128 numbers,
bfloat16. Every launch takes other parameters as an argument.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

_MEASURED_MULTIPROCESSORS = 132
_MEASURED_KV_HEADS = 8


class DecodeParameters(NamedTuple):
    """``num_shares`` shares are computed by ``num_shares * num_kv_heads`` programs; tiles are of ``tile`` tokens."""

    num_shares: int
    tile: int
    num_warps: int
    num_stages: int


class PrefixParameters(NamedTuple):
    """``num_programs`` programs take items of ``rows`` queries each off the list, and tokens by tiles of ``tile``."""

    num_programs: int
    rows: int
    tile: int
    num_warps: int
    num_stages: int


class PrefillParameters(NamedTuple):
    """A program computes ``rows`` queries (tokens times the heads that share a KV head), ``tile`` tokens at a time."""

    rows: int
    tile: int
    num_warps: int
    num_stages: int


class StoreParameters(NamedTuple):
    """A program takes ``tokens`` tokens of one KV head."""

    tokens: int
    num_warps: int


_DECODE = (  # from this many sequences on
    (65, DecodeParameters(num_shares=132, tile=16, num_warps=1, num_stages=3)),
    (5, DecodeParameters(num_shares=99, tile=32, num_warps=1, num_stages=2)),
    (0, DecodeParameters(num_shares=66, tile=32, num_warps=4, num_stages=3)),
)
_PREFIX = PrefixParameters(num_programs=264, rows=64, tile=64, num_warps=4, num_stages=3)
_PREFILL = (  # from this many queries of a KV head in the longest chunk on
    (65, PrefillParameters(rows=128, tile=64, num_warps=8, num_stages=3)),
    (0, PrefillParameters(rows=64, tile=64, num_warps=4, num_stages=3)),
)
_STORE = StoreParameters(tokens=16, num_warps=4)


def decode_parameters(num_seqs: int, num_kv_heads: int, device: torch.device) -> DecodeParameters:
    """The parameters for a batch of ``num_seqs``: the measured number of programs for each multiprocessor."""
    best = next(parameters for from_seqs, parameters in _DECODE if num_seqs >= from_seqs)
    card = multiprocessors(device) / _MEASURED_MULTIPROCESSORS
    return best._replace(num_shares=max(round(best.num_shares * _MEASURED_KV_HEADS * card / num_kv_heads), 1))


def multiprocessors(device: torch.device) -> int:
    """Of this card; on a CPU, in Triton's interpreter, as if it were the card that was measured."""
    if device.type != "cuda":
        return _MEASURED_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def prefix_parameters(device: torch.device) -> PrefixParameters:
    """As many programs for each multiprocessor as measured."""
    card = multiprocessors(device) / _MEASURED_MULTIPROCESSORS
    return _PREFIX._replace(num_programs=max(round(_PREFIX.num_programs * card), 1))


def prefill_parameters(longest_chunk_rows: int) -> PrefillParameters:
    """For chunks whose longest has ``longest_chunk_rows`` queries of each KV head."""
    return next(parameters for from_rows, parameters in _PREFILL if longest_chunk_rows >= from_rows)


def store_parameters() -> StoreParameters:
    """For any number of tokens."""
    return _STORE
