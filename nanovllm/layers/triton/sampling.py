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

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
LOG2_E = tl.constexpr(1.4426950408889634)
LARGEST_SCORE = tl.constexpr(1.0e38)
"""The difference of two logits or scores that are no further from 0 is a number still."""
SMALLEST_TEMPERATURE = tl.constexpr(1e-30)
"""What is smaller counts as this: it is as good as greedy already."""
LARGEST_TEMPERATURE = tl.constexpr(1e30)
"""What is larger counts as this: all that is a number is as likely, and all else still is not drawn."""


@triton.jit
def mix(bits):
    """Scramble unsigned 32-bit integers so that each bit of the result depends on all (MurmurHash3's finaliser)."""
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    return bits ^ (bits >> 16)


@triton.jit
def fold(bits, FACTOR: tl.constexpr):
    """Multiply unsigned 32-bit integers and fold the product's upper half onto its lower."""
    product = bits.to(tl.uint64) * FACTOR
    return (product >> 32).to(tl.uint32) ^ product.to(tl.uint32)


@triton.jit
def fast_log2(x):
    """The card's own instruction: off by 2^-22 between 1/2 and 2, elsewhere by that share of the result (PTX ISA,
    ``lg2.approx``). ``tl.log2`` takes some fifteen."""
    if INTERPRETED:
        return tl.log2(x)
    return tl.extra.cuda.libdevice.fast_log2f(x)


@triton.jit
def gumbel_noise(bits):
    """Gumbel noise of odd unsigned 32-bit integers, to base 2 and with a shift common to all: log2(log(2)) less, times
    log(2), it is the standard noise of ``runner.sampler.gumbel_noise``."""
    count = bits.to(tl.float32)
    # -log2(1 - u), u being count / 2^32: by its series while that is small, since 1 - u forgets the digits that matter
    # most. The series is too small where it ends too soon, and the logarithm, shifted by more than it can be off, is
    # too small while u is: the larger is the better one. (The shift also keeps its argument above 0.)
    series = count * (LOG2_E * 2.0**-32 + count * (LOG2_E / 2 * 2.0**-64 + count * (LOG2_E / 3 * 2.0**-96)))
    return -fast_log2(tl.maximum(series, -fast_log2((1 + 2.0**-21) - count * 2.0**-32)))


@triton.jit
def score_scale(temperature):
    """What logits are multiplied by before the noise is added, if there is any."""
    bounded = tl.minimum(tl.maximum(temperature, SMALLEST_TEMPERATURE), LARGEST_TEMPERATURE)
    return tl.where(temperature > 0, LOG2_E / bounded, 1.0)


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
    """The best token of one tile of one row. Scores are to base 2, as the card's logarithms are.

    Bound by instructions, not by memory: what is done once for each logit counts.
    """
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * TILE
    column = tl.arange(0, TILE)
    # Asked for ahead of the logits, greedy or not: waiting for memory once more would cost more than the work.
    temperature = tl.load(temperatures + row)
    position = tl.load(positions + row).to(tl.uint32)
    key = tl.load(seed_keys + row).to(tl.uint32)
    second_key = tl.load(seed_keys + stride_keys + row).to(tl.uint32)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    in_vocab = begin + column < vocab_size
    logit = tl.load(logits + row * stride_logits + begin + column, mask=in_vocab, other=float("-inf")).to(tl.float32)
    scale = score_scale(temperature)
    limit = LARGEST_SCORE / tl.maximum(scale, 1.0)
    logit = tl.where(logit > -limit, logit, -limit)  # a number of NaN, too: rows without a sequence may hold anything
    tile_largest = tl.minimum(tl.max(logit, 0), limit)
    score = logit - tile_largest
    if temperature > 0:
        position = mix(position)
        start = (first_token_id + begin).to(tl.uint32) * 0x9E3779B1 + mix(key ^ position)
        bits = fold(column.to(tl.uint32) * 0x9E3779B1 + start, 0xD2B74407) ^ mix(second_key ^ position)
        score = score * scale + gumbel_noise(fold(bits, 0xCA5A826B) | 1)
    # First the maximum, then where it is: in one go, ties cost more instructions.
    best_score = tl.max(score, 0)
    winner = tl.min(tl.where(score == best_score, column, TILE), 0)
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(largest + place, tile_largest)
    tl.store(best + place, best_score)
    # Where there is no number, the winner may lie beyond the vocabulary.
    tl.store(best_ids + place, first_token_id + tl.minimum(begin + winner, vocab_size - 1))


@triton.jit
def choose_tile_kernel(
    temperatures,  # [num_rows] float32
    largest,  # [num_rows, num_tiles] float32
    best,  # [num_rows, num_tiles] float32
    best_ids,  # [num_rows, num_tiles] int32
    token_ids,  # out [num_rows]
    positions,  # in and out [num_rows] int32, touched if ADVANCE: those above 0 are counted up
    num_tiles,
    TILES: tl.constexpr,  # num_tiles rounded up to a power of 2
    ADVANCE: tl.constexpr,
    PDL: tl.constexpr,
):
    """The best of all tiles of one row: of the lowest id, should several be."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, TILES)
    is_tile = tile < num_tiles
    scale = score_scale(tl.load(temperatures + row))
    if ADVANCE:
        position = tl.load(positions + row)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    place = row * num_tiles + tile
    tile_largest = tl.load(largest + place, mask=is_tile, other=float("-inf"))
    score = tl.load(best + place, mask=is_tile, other=float("-inf"))
    token_id = tl.load(best_ids + place, mask=is_tile, other=0x7FFFFFFF)
    if ADVANCE:
        tl.store(positions + row, position + (position > 0).to(tl.int32))
    score += (tile_largest - tl.max(tile_largest, 0)) * scale
    token_id = tl.min(tl.where(score == tl.max(score, 0), token_id, 0x7FFFFFFF), 0)
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
    advance: bool = False,
    pdl: bool = False,
) -> Tensor:
    """Draw one token per row, as ``runner.sampler.sample`` does without filters, up to the rounding of sums that nearly
    tie: two launches.

    ``logits`` ``[num_rows, vocab_size]``, whose rows may lie apart; ``temperatures`` ``[num_rows]`` float32, 0: greedy,
    which takes the lowest token id among equal logits; ``seed_keys`` ``[2, num_rows]`` int32, whose two rows may lie
    apart; ``positions`` ``[num_rows]`` int32: the place that the drawn token will have in its sequence. Writes and
    returns ``token_ids`` ``[num_rows]``, int32 or int64. ``vocabulary``: whose token ids the logits are of, if not all;
    the ranks show each other the best of every tile, and so all draw the same. Logits that are no numbers are never
    drawn; a row of nothing else yields some token of the vocabulary. ``advance``: then count the ``positions`` above 0
    up by one. ``pdl``: start while the kernel before ends (programmatic dependent launch; on a Hopper card or newer);
    what a row is drawn with, all but its logits, must then have been written by kernels that ended before that one
    began.
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
        positions,
        num_tiles,
        TILES=triton.next_power_of_2(num_tiles),
        ADVANCE=advance,
        PDL=pdl,
        **launch_options(1, pdl),
    )
    return token_ids
