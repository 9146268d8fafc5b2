"""Where token ids come from that nobody cares to choose: prompts by length, shared prefixes, simulated answers.

Every list is a pure function of a few words and numbers, the same on every machine and Python: the first bytes of
SHAKE-128, which can be asked for more without changing those it gave before. So a longer prefix begins like a
shorter one of the same name, and a conversation can be written down before its answers have been "generated".
"""

from __future__ import annotations

import struct
from hashlib import shake_128

from nanovllm.trace.events import RequestId

DEFAULT_VOCAB_SIZE = 32_000
"""Ids are drawn from below this number, the vocabulary of Llama 2: most models know all of them."""


MAX_DRAWN_TOKENS = 2**24
"""Nothing longer is drawn: no model sees so many tokens at once, and they take some hundred megabytes."""


def draw_token_ids(source: str, count: int, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """The first ``count`` ids of the endless stream called ``source``, each below ``vocab_size`` (at least 2).

    They are below the largest power of two in ``vocab_size`` and below 65,536: cutting 16-bit numbers to fewer bits
    is one operation for all of them.
    """
    bits = min(16, vocab_size.bit_length() - 1)
    drawn = int.from_bytes(shake_128(source.encode(), usedforsecurity=False).digest(2 * count), "little")
    mask = int.from_bytes(struct.pack("<H", (1 << bits) - 1) * count, "little")
    return list(struct.unpack(f"<{count}H", (drawn & mask).to_bytes(2 * count, "little")))


def own_token_ids(index: int, count: int, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """``count`` ids for request number ``index`` that no other request shares.

    The first id is even and another one for each of ``vocab_size / 2`` requests in a row, so that not even a block
    of one token is shared among them, nor with a shared prefix, whose ids are odd; the rest is drawn.
    """
    ids = draw_token_ids(f"own {seed} {index}", count, vocab_size)
    if ids:
        ids[0] = 2 * (index % (vocab_size // 2))
    return ids


def prefix_token_ids(name: str, count: int, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """The first ``count`` ids, all odd, of the shared prefix ``name``."""
    return [number | 1 for number in draw_token_ids(f"prefix {seed} {name}", count, vocab_size)]


def answer_token_ids(request_id: RequestId, count: int, vocab_size: int = DEFAULT_VOCAB_SIZE) -> list[int]:
    """What the simulator lets a request "generate": ``count`` ids that depend on its id alone."""
    return draw_token_ids(f"answer {request_id}", count, vocab_size)
