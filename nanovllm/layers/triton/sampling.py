"""Drawing the next tokens on the card: the draws of ``runner.sampler``, fused, for rows without filters.

Temperature, noise and the search for the largest sum take one look at the logits. Everything a draw depends on, its
position too, is read on the card, so that a CUDA graph draws anew each time it is replayed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanovllm.attention.triton.card import launch_options
from nanovllm.layers.group import SingleGroup, VocabularyShard
from nanovllm.layers.triton.launch_parameters import DrawParameters, draw_parameters

LOWEST = tl.constexpr(-3.0e38)
"""Below all logits, and a number."""
SMALLEST_TEMPERATURE = tl.constexpr(1e-30)
"""What is smaller counts as this: it is as good as greedy already."""


@triton.jit
def mix(bits):
    """Scramble unsigned 32-bit integers so that each bit of the result depends on all (MurmurHash3's finaliser)."""
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    return bits ^ (bits >> 16)


@triton.jit
def gumbel_noise(bits):
    """Standard Gumbel noise of unsigned 32-bit integers: ``runner.sampler.gumbel_noise`` up to rounding."""
    uniform = ((bits & 0x7FFFFFFF).to(tl.float32) + 0.5) * (2.0**-31 * (1 - 2.0**-23))
    # -log(1 - uniform): by its series while that is small, since 1 - uniform forgets the digits that matter most.
    series = uniform * (1.0 + uniform * (1 / 2 + uniform * (1 / 3 + uniform * 1 / 4)))
    exponential = tl.where(uniform < 0.004, series, tl.log2(1.0 - uniform) * -0.6931471805599453)
    return tl.log2(exponential) * -0.6931471805599453


@triton.jit
def draw_tiles_kernel(
    logits,  # [num_rows, vocab_size], rows stride_logits apart
    temperatures,  # [num_rows] float32; 0: greedy
    seed_keys,  # [2, num_rows] int32, stride_keys apart
    positions,  # [num_rows] int32: the place that the drawn token will have in its sequence
    largest,  # out [num_rows, num_tiles] float32: the tile's largest logit
    best,  # out [num_rows, num_tiles] float32: the best sum of scaled logit, counted from ``largest``, and noise
    best_ids,  # out [num_rows, num_tiles] int32: whose it is
    vocab_size,
    first_token_id,  # of the logits' first column
    stride_logits,
    stride_keys,
    TILE: tl.constexpr,
    PDL: tl.constexpr,
):
    """The best token of one tile of one row."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * TILE + tl.arange(0, TILE)
    in_vocab = token < vocab_size
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    temperature = tl.load(temperatures + row)
    logit = tl.load(logits + row * stride_logits + token, mask=in_vocab, other=float("-inf")).to(tl.float32)
    is_number = logit > float("-inf")  # false for NaN, too: rows without a sequence may hold anything
    tile_largest = tl.max(tl.where(is_number, logit, LOWEST), 0)
    score = tl.where(is_number, logit, tile_largest) - tile_largest
    if temperature > 0:
        position = mix(tl.load(positions + row).to(tl.uint32))
        key = mix(tl.load(seed_keys + row).to(tl.uint32) ^ position)
        second_key = mix(tl.load(seed_keys + stride_keys + row).to(tl.uint32) ^ position)
        noise = gumbel_noise(mix(mix((first_token_id + token).to(tl.uint32) ^ key) ^ second_key))
        score = score / tl.maximum(temperature, SMALLEST_TEMPERATURE) + noise
    score = tl.where(is_number, score, float("-inf"))
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(largest + place, tile_largest)
    best_score, winner = tl.max(score, 0, return_indices=True)
    tl.store(best + place, best_score)
    tl.store(best_ids + place, first_token_id + tl.program_id(1) * TILE + winner)


@triton.jit
def choose_tile_kernel(
    temperatures,  # [num_rows] float32
    largest,  # [num_rows, num_tiles] float32
    best,  # [num_rows, num_tiles] float32
    best_ids,  # [num_rows, num_tiles] int32
    token_ids,  # out [num_rows]
    num_tiles,
    TILES: tl.constexpr,  # num_tiles rounded up to a power of 2
    PDL: tl.constexpr,
):
    """The best of all tiles of one row."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, TILES)
    is_tile = tile < num_tiles
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    temperature = tl.load(temperatures + row)
    tile_largest = tl.load(largest + row * num_tiles + tile, mask=is_tile, other=LOWEST)
    score = tl.load(best + row * num_tiles + tile, mask=is_tile, other=float("-inf"))
    behind = tl.where(score > float("-inf"), tile_largest - tl.max(tile_largest, 0), 0.0)
    score += behind / tl.where(temperature > 0, tl.maximum(temperature, SMALLEST_TEMPERATURE), 1.0)
    winner = tl.argmax(score, 0)
    token_id = tl.load(best_ids + row * num_tiles + winner)
    tl.store(token_ids + row, token_id.to(token_ids.dtype.element_ty))


def draw(
    logits: Tensor,
    temperatures: Tensor,
    seed_keys: Tensor,
    positions: Tensor,
    token_ids: Tensor,
    *,
    vocabulary: VocabularyShard | None = None,
    parameters: DrawParameters | None = None,
    pdl: bool = False,
) -> Tensor:
    """Draw one token per row, as ``runner.sampler.sample`` does without filters, up to the rounding of sums that nearly
    tie: two launches.

    ``logits`` ``[num_rows, vocab_size]``, whose rows may lie apart; ``temperatures`` ``[num_rows]`` float32, 0: greedy,
    which takes the lowest token id among equal logits; ``seed_keys`` ``[2, num_rows]`` int32, whose two rows may lie
    apart; ``positions`` ``[num_rows]`` int32: the place that the drawn token will have in its sequence. Writes and
    returns ``token_ids`` ``[num_rows]``, int32 or int64. ``vocabulary``: whose token ids the logits are of, if not all;
    the ranks show each other the best of every tile, and so all draw the same. Logits that are no numbers are never
    drawn; a row of nothing else yields some token of the vocabulary.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1, "a row's logits lie side by side"
    assert seed_keys.stride(1) == 1, "keys of the same kind lie side by side"
    if vocabulary is None:
        vocabulary = VocabularyShard(vocab_size, SingleGroup())
    tile, num_warps = parameters or draw_parameters(num_rows)
    num_tiles = triton.cdiv(vocabulary.max_len, tile)
    tiles = torch.empty(3, num_rows, num_tiles, dtype=torch.int32, device=logits.device)
    largest, best, best_ids = tiles[0].view(torch.float32), tiles[1].view(torch.float32), tiles[2]
    draw_tiles_kernel[(num_rows, num_tiles)](
        logits,
        temperatures,
        seed_keys,
        positions,
        largest,
        best,
        best_ids,
        vocab_size,
        vocabulary.token_ids.start,
        logits.stride(0),
        seed_keys.stride(0),
        TILE=tile,
        PDL=pdl,
        **launch_options(num_warps, pdl),
    )
    if not vocabulary.is_whole:
        gathered = vocabulary.group.all_gather(tiles)  # [size, 3, num_rows, num_tiles]
        tiles = gathered.permute(1, 2, 0, 3).flatten(2).contiguous()  # [3, num_rows, size * num_tiles]
        largest, best, best_ids = tiles[0].view(torch.float32), tiles[1].view(torch.float32), tiles[2]
        num_tiles = tiles.shape[2]
    choose_tile_kernel[(num_rows,)](
        temperatures,
        largest,
        best,
        best_ids,
        token_ids,
        num_tiles,
        TILES=triton.next_power_of_2(num_tiles),
        PDL=pdl,
        **launch_options(1, pdl),
    )
    return token_ids
