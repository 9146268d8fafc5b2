"""Launching the prefill kernels: the list of a step's tiles, and a layer's two launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from nanovllm.attention.to_device import to_device
from nanovllm.attention.triton.card import launch_options
from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from nanovllm.attention.triton.launch_parameters import (
    PrefillParameters,
    StoreParameters,
    prefill_parameters,
    store_parameters,
)
from nanovllm.attention.triton.pool import block_size_of
from nanovllm.attention.triton.prefill import prefill_kernel
from nanovllm.attention.triton.store import store_kernel


@dataclass(frozen=True)
class PrefillStep:
    """A step of chunks, cut into tiles."""

    tiles: Tensor
    """``[num_tiles, 4]`` int32: row of a tile's first token, its number of tokens, position of the first, sequence. All
    zeros: the tile is empty."""
    block_tables: Tensor
    """``[num_seqs, max_blocks]`` int32."""
    parameters: PrefillParameters


def plan_prefill(
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    block_tables: Tensor,
    shape: HeadShape,
    *,
    dtype: torch.dtype,
    parameters: PrefillParameters | None = None,
) -> PrefillStep:
    """Cut a step into tiles: once a step, for all layers.

    ``query_lens``: tokens computed for each sequence, at least 1, side by side in the step; ``context_lens``: tokens up
    to the last one computed; ``block_tables`` ``[num_seqs, max_blocks]`` int32, whose device is the step's; ``dtype``:
    of the pool.
    """
    parameters = parameters or prefill_parameters(max(query_lens), shape, dtype.itemsize, block_tables.device)
    tiles = list_tiles(query_lens, context_lens, tile_tokens(parameters, shape))
    return PrefillStep(to_device(tiles, block_tables.device), block_tables, parameters)


def tile_tokens(parameters: PrefillParameters, shape: HeadShape) -> int:
    """How many tokens of one sequence a program computes; a row is one of them for one head."""
    return max(parameters.rows // shape.group, 1)


def list_tiles(query_lens: Sequence[int], context_lens: Sequence[int], tokens_per_tile: int) -> NDArray[np.int32]:
    """``[num_tiles, 4]``, see ``PrefillStep.tiles``: those that attend to most tokens first, so that the last programs
    to start are short."""
    lens = np.asarray(query_lens)
    num_tiles = -(-lens // tokens_per_tile)
    seqs = np.repeat(np.arange(len(lens)), num_tiles)
    ends = num_tiles.cumsum()
    first_tokens = (np.arange(ends[-1]) - (ends - num_tiles)[seqs]) * tokens_per_tile  # within the chunk
    num_tokens = np.minimum(lens[seqs] - first_tokens, tokens_per_tile)
    rows = (lens.cumsum() - lens)[seqs] + first_tokens
    positions = (np.asarray(context_lens) - lens)[seqs] + first_tokens
    order = np.argsort(-(positions + num_tokens), kind="stable")
    return np.stack([rows, num_tokens, positions, seqs], axis=1)[order].astype(np.int32)


def store(
    qkv: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    transform: HeadTransform,
    shape: HeadShape,
    *,
    parameters: StoreParameters | None = None,
    pdl: bool = False,
) -> Tensor:
    """Normalise and rotate the heads of new tokens; store keys and values: one launch a layer.

    ``qkv`` ``[num_tokens, (num_heads + 2 num_kv_heads) * head_dim]``, contiguous; ``positions``, ``slot_mapping``
    ``[num_tokens]``, int32 or int64, a slot below 0 for a token that is not to be stored; ``keys``, ``values``: one
    layer's pool ``[num_blocks, block_size, num_kv_heads, head_dim]``. Writes and returns ``query`` ``[num_tokens,
    num_heads, head_dim]``, whose tokens may lie apart: the queries in ``qkv`` itself will do.
    """
    assert qkv.is_contiguous(), "tokens lie side by side"
    assert query.stride()[1:] == (shape.head_dim, 1), "a token's heads lie side by side"
    parameters = parameters or store_parameters()
    store_kernel[(triton.cdiv(len(qkv), parameters.tokens), shape.num_kv_heads)](
        qkv,
        transform.q_norm,
        transform.k_norm,
        transform.cos,
        transform.sin,
        positions,
        slot_mapping,
        query,
        keys,
        values,
        len(qkv),
        transform.eps,
        query.stride(0),
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        NUM_KV_HEADS=shape.num_kv_heads,
        GROUP=shape.group,
        HEAD_DIM=shape.head_dim,
        HALF_UP=shape.half_up,
        BLOCK_SIZE=block_size_of(keys, values),
        TOKENS=parameters.tokens,
        NORM=transform.q_norm is not None,
        PDL=pdl,
        **launch_options(parameters.num_warps, pdl),
    )
    return query


def attend_chunks(
    step: PrefillStep,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    shape: HeadShape,
    *,
    pdl: bool = False,
) -> Tensor:
    """Let each new token attend to its sequence up to itself: one launch a layer, after ``store``.

    ``query`` as returned by ``store``; ``keys``, ``values``: one layer's pool, blocks of a power of 2, at least 16
    tokens. Writes and returns ``out`` ``[num_tokens, num_heads, head_dim]``, contiguous.
    """
    parameters = step.parameters
    assert query.stride()[1:] == (shape.head_dim, 1), "a token's heads lie side by side"
    assert out.is_contiguous(), "tokens lie side by side"
    prefill_kernel[(len(step.tiles) * shape.num_kv_heads,)](
        query,
        keys,
        values,
        out,
        step.tiles,
        step.block_tables,
        shape.scale,
        query.stride(0),
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        step.block_tables.stride(0),
        NUM_KV_HEADS=shape.num_kv_heads,
        GROUP=shape.group,
        ROWS=max(parameters.rows, triton.next_power_of_2(shape.group)),
        HEAD_DIM=shape.head_dim,
        HALF_UP=shape.half_up,
        BLOCK_SIZE=block_size_of(keys, values),
        TILE=parameters.tile,
        NUM_STAGES=parameters.num_stages,
        PDL=pdl,
        **launch_options(parameters.num_warps, pdl),
    )
    return out
