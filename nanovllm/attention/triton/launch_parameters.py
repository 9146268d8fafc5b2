"""How each attention kernel is cut into programs: the one place to look at when a card is to be made faster.

The defaults were measured on an NVIDIA H200 with 16 query heads, 8 KV heads of 128 numbers, bfloat16, decode steps with
contexts of 256 to 2,200 tokens; wider numbers and heads get what their registers allow. Every launch takes other
parameters as an argument.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch

from nanovllm.attention.triton.card import MEASURED_MULTIPROCESSORS, multiprocessors, shared_memory_bytes
from nanovllm.attention.triton.heads import HeadShape

_MEASURED_KV_HEADS = 8


class DecodeParameters(NamedTuple):
    """``num_shares`` shares are computed by ``num_shares * num_kv_heads`` programs; tiles are of ``tile`` tokens.
    ``prefetches``: a share's first keys and values are asked into the L2 cache while the kernel ahead still runs."""

    num_shares: int
    tile: int
    num_warps: int
    num_stages: int
    prefetches: bool = False


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
    (4, DecodeParameters(num_shares=132, tile=16, num_warps=1, num_stages=3)),
    (2, DecodeParameters(num_shares=49, tile=64, num_warps=4, num_stages=2)),
    (0, DecodeParameters(num_shares=66, tile=64, num_warps=8, num_stages=2, prefetches=True)),
)
_DECODE_BEHIND_PREFIX = DecodeParameters(num_shares=132, tile=16, num_warps=1, num_stages=2)
"""Where prefixes are attended to elsewhere and little is left of each sequence."""
DECODE_BATCHES = tuple(from_seqs for from_seqs, _ in _DECODE)
"""The least number of sequences of each set of parameters."""

_PREFIX = PrefixParameters(num_programs=264, rows=64, tile=64, num_warps=4, num_stages=3)
_PREFIX_LARGE_HEADS = PrefixParameters(num_programs=132, rows=64, tile=64, num_warps=8, num_stages=2)
_PREFIX_FLOAT32 = PrefixParameters(num_programs=264, rows=32, tile=32, num_warps=8, num_stages=2)

_PREFILL = (  # from this many queries of a KV head in the longest chunk on
    (65, PrefillParameters(rows=128, tile=64, num_warps=8, num_stages=3)),
    (0, PrefillParameters(rows=64, tile=64, num_warps=4, num_stages=3)),
)
_PREFILL_LARGE_HEADS = (
    (65, PrefillParameters(rows=128, tile=32, num_warps=8, num_stages=3)),
    (0, PrefillParameters(rows=64, tile=64, num_warps=8, num_stages=2)),
)
_PREFILL_FLOAT32 = ((0, PrefillParameters(rows=32, tile=16, num_warps=8, num_stages=2)),)

_STORE = StoreParameters(tokens=16, num_warps=4)


def decode_parameters(
    num_seqs: int, shape: HeadShape, itemsize: int, device: torch.device, *, is_behind_prefix: bool = False
) -> DecodeParameters:
    """For a batch of ``num_seqs`` and numbers of ``itemsize`` bytes: as many programs a multiprocessor as measured."""
    best = next(parameters for from_seqs, parameters in _DECODE if num_seqs >= from_seqs)
    best = _DECODE_BEHIND_PREFIX if is_behind_prefix else best
    card = multiprocessors(device) / MEASURED_MULTIPROCESSORS
    num_shares = max(round(best.num_shares * _MEASURED_KV_HEADS * card / shape.num_kv_heads), 1)
    num_warps = max(best.num_warps, best.tile // 16, 2) if shape.half_up > 64 else best.num_warps
    return _fitting(best._replace(num_shares=num_shares, num_warps=num_warps), 16, shape, itemsize, device)


def prefix_parameters(shape: HeadShape, itemsize: int, device: torch.device) -> PrefixParameters:
    """For numbers of ``itemsize`` bytes: as many programs a multiprocessor as measured."""
    best = _PREFIX_FLOAT32 if itemsize > 2 else _PREFIX_LARGE_HEADS if shape.half_up > 64 else _PREFIX
    card = multiprocessors(device) / MEASURED_MULTIPROCESSORS
    best = best._replace(num_programs=max(round(best.num_programs * card), 1))
    return _fitting(best, best.rows, shape, itemsize, device)


def prefill_parameters(
    longest_chunk_tokens: int, shape: HeadShape, itemsize: int, device: torch.device
) -> PrefillParameters:
    """For a step whose longest chunk is of so many tokens, and numbers of ``itemsize`` bytes."""
    table = _PREFILL_FLOAT32 if itemsize > 2 else _PREFILL_LARGE_HEADS if shape.half_up > 64 else _PREFILL
    best = next(parameters for from_rows, parameters in table if longest_chunk_tokens * shape.group >= from_rows)
    return _fitting(best, best.rows, shape, itemsize, device)


def store_parameters() -> StoreParameters:
    """For any number of tokens."""
    return _STORE


_Tiled = TypeVar("_Tiled", DecodeParameters, PrefixParameters, PrefillParameters)


def _fitting(parameters: _Tiled, rows: int, shape: HeadShape, itemsize: int, device: torch.device) -> _Tiled:
    """With fewer stages or smaller tiles, until queries, keys and values fit into this card's shared memory."""
    line_bytes = 2 * shape.half_up * itemsize
    while parameters.tile > 16:
        num_buffers = max(parameters.num_stages - 1, 2)
        if line_bytes * (rows + 2 * parameters.tile * num_buffers) <= shared_memory_bytes(device):
            break
        if parameters.num_stages > 2:
            parameters = parameters._replace(num_stages=parameters.num_stages - 1)
        else:
            parameters = parameters._replace(tile=parameters.tile // 2)
    return parameters
