"""Drawing the next tokens: vectorised over the batch, and repeatable for each request on its own.

A draw is the Gumbel-max trick: add to each logit a noise that is a hash of (seed, position, token id), take the
largest. The noise has no state, so what a request draws depends on its seed and the position of the token only: not on
the other rows, nor on a preemption in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from torch import Tensor

from nanovllm.attention.to_device import to_device
from nanovllm.engine.sequence import Sequence
from nanovllm.layers.group import VocabularyShard

_MIN_TEMPERATURE = 1e-30
"""Whatever is smaller would be 0 in float32; this is as good as greedy already."""
_LOW_HALF = 2**32 - 1
"""Of an int64: its lower 32 bits."""


@dataclass(frozen=True)
class SamplingInputs:
    """What a step's rows are drawn with, each ``[num_rows]``. None: no row needs it."""

    temperature: Tensor
    """float32, above 0."""
    greedy: Tensor | None
    """bool."""
    keys: Tensor | None
    """``[num_rows, 2]`` int32: what the noise of the row is hashed from. None: every row is greedy."""
    top_k: Tensor | None
    """int64, from 1 to the size of the vocabulary."""
    top_p: Tensor | None
    """float32."""
    min_p: Tensor | None
    """float32."""


def build_sampling_inputs(
    sequences: list[Sequence], engine_seed: int, vocab_size: int, device: torch.device
) -> SamplingInputs:
    """``engine_seed`` and the request's id stand in for the seed of a request that has none."""
    params = [seq.sampling_params for seq in sequences]

    def column(values: list[float] | list[int] | list[bool], dtype: type, unused: float) -> Tensor | None:
        if all(value == unused for value in values):
            return None
        return to_device(np.array(values, dtype=dtype), device)

    greedy = [p.temperature == 0 for p in params]
    temperature = [max(p.temperature, _MIN_TEMPERATURE) for p in params]
    top_k = [min(p.top_k, vocab_size) if p.top_k > 0 else vocab_size for p in params]
    keys = None
    if not all(greedy):
        positions = torch.tensor([seq.num_tokens for seq in sequences], dtype=torch.int32)
        keys = to_device(draw_keys(torch.from_numpy(seed_keys(sequences, engine_seed)), positions).numpy(), device)
    return SamplingInputs(
        temperature=to_device(np.array(temperature, dtype=np.float32), device),
        greedy=column(greedy, np.bool_, False),
        keys=keys,
        top_k=column(top_k, np.int64, vocab_size),
        top_p=column([p.top_p for p in params], np.float32, 1.0),
        min_p=column([p.min_p for p in params], np.float32, 0.0),
    )


def seed_keys(sequences: list[Sequence], engine_seed: int) -> np.ndarray:
    """``[num_rows, 2]`` int32: what all draws of each request are hashed from."""
    seeds = [seq.sampling_params.seed for seq in sequences]
    sources = [
        f"{engine_seed}/{seq.request_id!r}" if seed is None else str(seed)
        for seq, seed in zip(sequences, seeds, strict=True)
    ]
    hashes = [xxhash.xxh64_intdigest(source.encode()) for source in sources]
    return np.array(hashes, dtype=np.uint64).view(np.int32).reshape(-1, 2)


def draw_keys(keys: Tensor, positions: Tensor) -> Tensor:
    """What single draws are hashed from: the ``seed_keys`` ``[num_rows, 2]`` of their requests and ``positions``
    ``[num_rows]``, the place that the drawn token will have in its sequence; all int32, as is the result
    ``[num_rows, 2]``."""
    return _mix(keys ^ _mix(positions)[:, None])


def sample(logits: Tensor, inputs: SamplingInputs, vocabulary: VocabularyShard | None = None) -> Tensor:
    """Draw one token per row of ``logits`` ``[num_rows, vocab_size]``. Returns ``[num_rows]`` int64.

    Among equal logits greedy takes the lowest token id. ``vocabulary``: whose token ids the logits are of, if not all;
    then all ranks of its group draw, and draw the same.
    """
    if vocabulary is not None and not vocabulary.is_whole:
        if inputs.top_k is None and inputs.top_p is None and inputs.min_p is None:
            return _sample_shards(logits.float(), inputs, vocabulary)
        logits = vocabulary.gather_logits(logits)
    logits = logits.float()
    if inputs.keys is None:
        return logits.argmax(dim=-1)
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / inputs.temperature[:, None]
    threshold = filter_threshold(scaled, inputs)
    if threshold is not None:
        scaled = scaled.masked_fill(scaled < threshold, -math.inf)
    drawn = (scaled + gumbel_noise(inputs.keys, logits.shape[1])).argmax(dim=-1)
    if inputs.greedy is None:
        return drawn
    return torch.where(inputs.greedy, logits.argmax(dim=-1), drawn)


def _sample_shards(logits: Tensor, inputs: SamplingInputs, vocabulary: VocabularyShard) -> Tensor:
    """Each rank finds the best of its own tokens; the best of these is drawn."""
    group, token_ids = vocabulary.group, vocabulary.token_ids
    scores = logits
    if inputs.keys is not None:
        largest = group.all_gather(logits.amax(dim=-1)).amax(dim=0)[:, None]
        noise = gumbel_noise(inputs.keys, len(token_ids), token_ids.start)
        scores = (logits - largest) / inputs.temperature[:, None] + noise
        if inputs.greedy is not None:
            scores = torch.where(inputs.greedy[:, None], logits, scores)
    place = scores.argmax(dim=-1, keepdim=True)  # [num_rows, 1]
    best = torch.cat((scores.gather(1, place).view(torch.int32), (place + token_ids.start).int()), dim=1)
    bests = group.all_gather(best)  # [size, num_rows, 2]
    rank = bests[:, :, 0].contiguous().view(torch.float32).argmax(dim=0)  # the first if equal: it has the lowest ids
    return bests[:, :, 1].gather(0, rank[None])[0].long()


# ---- filters -------------------------------------------------------------------------------------------------


def filter_threshold(scaled: Tensor, inputs: SamplingInputs) -> Tensor | None:
    """The smallest scaled logit that top-k, top-p and min-p keep: ``[num_rows, 1]``, or None if there is no filter.

    ``scaled``: logits over temperature with maximum 0. Tokens exactly as likely as the last one kept are kept too:
    which of them came first would be chance.
    """
    thresholds = []
    ranked = None
    if inputs.top_k is not None:
        top_k = inputs.top_k[:, None]
        ranked = scaled.topk(int(top_k.max()), dim=-1).values  # [num_rows, largest k], descending
        thresholds.append(ranked.gather(1, top_k - 1))
        ranked = ranked.masked_fill(torch.arange(ranked.shape[1], device=ranked.device) >= top_k, -math.inf)
    if inputs.top_p is not None:
        thresholds.append(_top_p_threshold(scaled if ranked is None else ranked, inputs.top_p[:, None]))
    if inputs.min_p is not None:
        thresholds.append(inputs.min_p[:, None].log())
    return torch.stack(thresholds).amax(dim=0) if thresholds else None


def _top_p_threshold(logits: Tensor, top_p: Tensor) -> Tensor:
    """The last of the most likely tokens whose probabilities together reach ``top_p`` ``[num_rows, 1]``."""
    ranked = _sort_descending(logits)
    probabilities = ranked.softmax(dim=-1)
    sums = probabilities.cumsum(dim=-1)
    num_kept = (sums - probabilities < top_p).sum(dim=-1, keepdim=True)
    # Rounding must not filter a row that asked for no filter.
    return ranked.gather(1, num_kept - 1).masked_fill(top_p >= 1, -math.inf)


def _sort_descending(values: Tensor) -> Tensor:
    # On a CPU numpy, which sorts numbers without their indices, takes a thirtieth of torch's time.
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=-1)).flip(-1)
    return values.sort(dim=-1, descending=True).values


# ---- noise ---------------------------------------------------------------------------------------------------


def gumbel_noise(keys: Tensor, num_token_ids: int, first_token_id: int = 0) -> Tensor:
    """Standard Gumbel noise ``[num_rows, num_token_ids]`` float32, a pure function of ``keys`` ``[num_rows, 2]`` int32
    and token id."""
    end = first_token_id + num_token_ids
    token_ids = torch.arange(first_token_id, end, dtype=torch.int64, device=keys.device)
    wide_keys = keys.long() & _LOW_HALF
    # What is done for each token is kept short: the kernel that draws (``layers.triton.sampling``) is bound by it.
    bits = (token_ids * 0x9E3779B1 + wide_keys[:, :1]).bitwise_and_(_LOW_HALF)
    bits = _fold(bits, 0xD2B74407).bitwise_xor_(wide_keys[:, 1:])
    bits = _fold(bits, 0xCA5A826B).bitwise_or_(1)  # off 0, where the noise would be infinite
    # Kept off 1, too. What wins are the *small* exponentials -log(1 - u), where u has full precision.
    uniform = bits.float() * (2.0**-32 * (1 - 2.0**-23))
    return -(-torch.log1p(-uniform)).log()


def _fold(bits: Tensor, factor: int) -> Tensor:
    """Multiply unsigned 32-bit numbers, held in int64, and fold the product's upper half onto its lower (a step of
    wyhash, at half its width). ``bits`` are spent: rows times vocabulary is a lot of memory."""
    product = bits.mul_(factor)
    return (product >> 32).bitwise_xor_(product).bitwise_and_(_LOW_HALF)


def _mix(bits: Tensor) -> Tensor:
    """Scramble 32-bit integers so that each bit of the result depends on all (the finaliser of MurmurHash3)."""
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * -2048144789
    bits = (bits ^ ((bits >> 13) & 0x7FFFF)) * -1028477387
    return bits ^ ((bits >> 16) & 0xFFFF)
