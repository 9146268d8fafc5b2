"""Where token ids come from that nobody cares to choose: prompts by length, shared prefixes, simulated answers.

Every list is a pure function of a few words and numbers, the same on every machine and Python: the first bytes of
SHAKE-128, which can be asked for more without changing those it gave before. So a longer prefix begins like a
shorter one of the same name, and a conversation can be written down before its answers have been "generated".
"""

from __future__ import annotations

import sys
from array import array
from functools import cache
from hashlib import shake_128

from nanovllm.trace.events import RequestId

DEFAULT_VOCAB_SIZE = 32_000
"""Ids are drawn from below this number, the vocabulary of Llama 2: most models know all of them."""


MAX_DRAWN_TOKENS = 2**24
"""Nothing longer is drawn: no model sees so many tokens at once, and they take some hundred megabytes."""


def draw_tokens(source: str, count: int, vocab_size: int = DEFAULT_VOCAB_SIZE, *, odd: bool = False) -> array[int]:
    """The first ``count`` ids of the endless stream called ``source``, each below ``vocab_size`` (at least 2);
    if ``odd``, with their last bit set.

    They are below the largest power of two in ``vocab_size`` and below 65,536: from 16-bit numbers, bits are cut. No
    loop over ids is run for that, since the prompts of an hour have millions.
    """
    mask = (1 << min(16, vocab_size.bit_length() - 1)) - 1
    drawn = shake_128(source.encode(), usedforsecurity=False).digest(2 * count)
    data = bytearray(4 * count)
    data[0::4] = drawn[0::2].translate(_table(mask & 0xFF, int(odd)))
    data[1::4] = drawn[1::2].translate(_table(mask >> 8, 0))
    ids = array("I", bytes(data))
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


@cache
def _table(mask: int, added_bits: int) -> bytes:
    """Every byte without the bits that ``mask`` lacks and with ``added_bits``, for ``bytes.translate``."""
    return bytes(byte & mask | added_bits for byte in range(256))


def own_tokens(index: int, count: int, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE) -> array[int]:
    """``count`` ids for request number ``index`` that no other request shares.

    The first id is even and another one for each of ``vocab_size / 2`` requests in a row, so that not even a block
    of one token is shared among them, nor with a shared prefix, whose ids are odd; the rest is drawn.
    """
    ids = draw_tokens(f"own {seed} {index}", count, vocab_size)
    if ids:
        ids[0] = 2 * (index % (vocab_size // 2))
    return ids


def prefix_tokens(name: str, count: int, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE) -> array[int]:
    """The first ``count`` ids, all odd, of the shared prefix ``name``."""
    return draw_tokens(f"prefix {seed} {name}", count, vocab_size, odd=True)


# ---- the same as lists ---------------------------------------------------------------------------------------


def draw_token_ids(source: str, count: int, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """See ``draw_tokens``."""
    return draw_tokens(source, count, vocab_size).tolist()


def own_token_ids(index: int, count: int, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """See ``own_tokens``."""
    return own_tokens(index, count, seed, vocab_size).tolist()


def prefix_token_ids(name: str, count: int, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """See ``prefix_tokens``."""
    return prefix_tokens(name, count, seed, vocab_size).tolist()


def answer_token_ids(request_id: RequestId, count: int, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """What the simulator lets a request "generate": ``count`` ids that depend on its id alone."""
    return draw_token_ids(f"answer {request_id}", count, vocab_size)
