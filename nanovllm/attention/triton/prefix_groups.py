"""Which decoding sequences share which leading blocks, and how to cut the attention to them into items.

The block tables of a batch form a tree: sequences stay together as long as their blocks are the same. Where at least
two of them share enough tokens, they form a group; within it, a smaller group may share what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PrefixGroup:
    """Sequences that hold the same blocks for the tokens from ``first_token`` up to ``end_token``."""

    members: NDArray[np.int64]
    """Rows of the batch, at least 2."""
    first_token: int
    end_token: int

    @property
    def saved_tokens(self) -> int:
        """Tokens whose keys and values need not be read again, compared to each member reading its own."""
        return (len(self.members) - 1) * (self.end_token - self.first_token)


class PrefixItem(NamedTuple):
    """One piece of work: ``num_members`` members attend to a range of tokens, which becomes their part ``part``."""

    first_member: int
    """Index into all members of all items."""
    num_members: int
    reader: int
    """The member whose block table is read."""
    first_token: int
    end_token: int
    part: int


def find_prefix_groups(
    block_tables: NDArray[np.integer],
    context_lens: NDArray[np.integer],
    block_size: int,
    *,
    min_saved_tokens: int = 256,
    max_levels: int = 8,
) -> list[PrefixGroup]:
    """The groups of a batch, each before those within it; a sequence is in ``max_levels`` at most.

    ``block_tables`` ``[num_seqs, max_blocks]``; ``context_lens`` ``[num_seqs]``: tokens, the newest included. A block
    counts if it is full without the newest token, which each sequence has for itself. The groups of a sequence follow
    one another without a gap, from its first token. A range that would save less than ``min_saved_tokens`` is left to
    the smaller groups within it.
    """
    num_full = (np.asarray(context_lens) - 1) // block_size  # [num_seqs]
    groups: list[PrefixGroup] = []
    pending = [(np.flatnonzero(num_full > 0), 0, 0, 0)]  # sequences, block they split at, first block, level
    while pending:
        seqs, depth, first, level = pending.pop()
        for members in _split(seqs, block_tables[seqs, depth]):
            end = depth + _common_blocks(block_tables[members, depth : num_full[members].min()])
            group = PrefixGroup(members, first * block_size, end * block_size)
            pays = group.saved_tokens >= min_saved_tokens
            if pays:
                groups.append(group)
            deeper = members[num_full[members] > end]
            if len(deeper) > 1 and level + pays < max_levels:
                pending.append((deeper, end, end if pays else first, level + pays))
    return groups


def _split(seqs: NDArray[np.int64], blocks: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """The sequences by block, those alone with theirs left out."""
    order = np.argsort(blocks, kind="stable")
    ordered = blocks[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    if len(cuts) == len(seqs) - 1:
        return []
    return [part for part in np.split(seqs[order], cuts) if len(part) > 1]


def _common_blocks(tables: NDArray[np.integer]) -> int:
    """How many leading columns hold one block each."""
    differs = np.flatnonzero((tables != tables[0]).any(axis=0))
    return int(differs[0]) if len(differs) else tables.shape[1]


def cut_into_items(
    groups: list[PrefixGroup],
    num_seqs: int,
    *,
    members_per_item: int,
    num_items: int,
    max_parts: int,
    tile: int,
    min_part_tokens: int = 256,
) -> tuple[list[PrefixItem], NDArray[np.int64], NDArray[np.int64]]:
    """Cut groups, in the order of ``find_prefix_groups``, into about ``num_items`` items of equal size.

    Ranges are cut at multiples of ``tile`` tokens into parts of at least ``min_part_tokens``, so that no sequence has
    more than ``max_parts``. Returns the items, all members that they index, and each sequence's number of parts
    ``[num_seqs]``.
    """
    work = sum(_ceil_div(len(g.members), members_per_item) * (g.end_token - g.first_token) for g in groups)
    part_tokens = _ceil_div(max(_ceil_div(work, num_items), min_part_tokens), tile) * tile
    # A part for each group of a sequence is set aside, so that those that come later find one.
    num_reserved = np.zeros(num_seqs, dtype=np.int64)
    for group in groups:
        num_reserved[group.members] += 1
    num_parts = np.zeros(num_seqs, dtype=np.int64)
    items: list[PrefixItem] = []
    first_member = 0
    for group in groups:
        room = max_parts - int((num_parts + num_reserved)[group.members].max()) + 1
        length = max(part_tokens, _ceil_div(_ceil_div(group.end_token - group.first_token, room), tile) * tile)
        part = int(num_parts[group.members[0]])
        reader = int(group.members[0])
        for begin in range(group.first_token, group.end_token, length):
            end = min(begin + length, group.end_token)
            for member in range(0, len(group.members), members_per_item):
                count = min(members_per_item, len(group.members) - member)
                items.append(PrefixItem(first_member + member, count, reader, begin, end, part))
            part += 1
        first_member += len(group.members)
        num_parts[group.members] = part
        num_reserved[group.members] -= 1
    members = np.concatenate([g.members for g in groups]) if groups else np.zeros(0, dtype=np.int64)
    return items, members, num_parts


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
