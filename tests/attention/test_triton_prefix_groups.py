"""Who shares what, and how the work is cut: found on the host, for any tree of block tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("triton", reason="needs Triton, which there is for Linux only")

from nanovllm.attention.triton.prefix_groups import PrefixGroup, cut_into_items, find_prefix_groups

BLOCK_SIZE = 16


def batch(*tables: list[int], own_tokens: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Block tables whose blocks are all full, and contexts with some tokens more."""
    width = max(len(table) for table in tables) + 1
    padded = np.array([table + [0] * (width - len(table)) for table in tables])
    return padded, np.array([len(table) * BLOCK_SIZE + own_tokens for table in tables])


def find(*tables: list[int], saved: int = 1, own_tokens: int = 1, levels: int = 8) -> list[tuple[list[int], int, int]]:
    groups = find_prefix_groups(
        *batch(*tables, own_tokens=own_tokens), BLOCK_SIZE, min_saved_tokens=saved, max_levels=levels
    )
    return [(group.members.tolist(), group.first_token // 16, group.end_token // 16) for group in groups]


def test_sequences_alone_form_no_group() -> None:
    assert find([1, 2, 3], [4, 5], [6]) == []


def test_a_group_ends_where_its_members_part() -> None:
    assert find([1, 2, 3], [9], [1, 2, 4]) == [([0, 2], 0, 2)]


def test_the_newest_token_is_never_shared() -> None:
    # Without a token more, the last block is full only with the newest token of each.
    assert find([1, 2], [1, 2], own_tokens=0) == [([0, 1], 0, 1)]


def test_a_group_may_be_a_prefix_of_one_of_its_members() -> None:
    assert find([1, 2], [1, 2, 3, 4], [1, 2, 3, 4]) == [([0, 1, 2], 0, 2), ([1, 2], 2, 4)]


def test_a_range_too_short_to_pay_is_left_to_the_groups_within() -> None:
    tables = [1, 2, 3, 4], [1, 2, 3, 4], [1, 5], [1, 6]
    assert find(*tables, saved=48) == [([0, 1, 2, 3], 0, 1), ([0, 1], 1, 4)]
    assert find(*tables, saved=49) == [([0, 1], 0, 4)]
    assert find(*tables, saved=65) == []


def test_no_deeper_than_asked() -> None:
    tables = [1, 2, 3], [1, 2, 3], [1, 2, 4], [1, 5]
    assert len(find(*tables)) == 3
    assert len(find(*tables, levels=2)) == 2


trees = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=9)


def tables_of(paths: list[list[int]]) -> list[list[int]]:
    """Paths in a tree as block tables: equal paths are equal blocks, different ones differ from there on."""
    ids: dict[tuple[int, ...], int] = {}
    return [[ids.setdefault(tuple(path[: i + 1]), len(ids) + 1) for i in range(len(path))] for path in paths]


@settings(max_examples=200)
@given(trees, st.sampled_from([1, 17, 40, 100]), st.integers(1, 4))
def test_groups_of_any_tree(paths: list[list[int]], saved: int, levels: int) -> None:
    tables, lens = batch(*tables_of(paths))
    ends = np.zeros(len(lens), dtype=int)
    depth = np.zeros(len(lens), dtype=int)
    for group in find_prefix_groups(tables, lens, BLOCK_SIZE, min_saved_tokens=saved, max_levels=levels):
        blocks = tables[group.members, group.first_token // BLOCK_SIZE : group.end_token // BLOCK_SIZE]
        assert (blocks == blocks[0]).all()
        assert (blocks != 0).all()
        assert len(group.members) >= 2
        assert group.saved_tokens >= saved
        assert (ends[group.members] == group.first_token).all(), "no gap, no overlap"
        ends[group.members] = group.end_token
        depth[group.members] += 1
    assert depth.max() <= levels
    assert (ends < lens).all()


@settings(max_examples=200)
@given(
    trees,
    st.integers(1, 20),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([4, 8]),
    st.sampled_from([16, 64]),
    st.sampled_from([1, 64]),
)
def test_items_cover_each_group_once(
    paths: list[list[int]], num_items: int, members_per_item: int, max_parts: int, tile: int, min_tokens: int
) -> None:
    tables, lens = batch(*tables_of(paths))
    groups = find_prefix_groups(tables, lens, BLOCK_SIZE, min_saved_tokens=1, max_levels=max_parts)
    items, members, num_parts = cut_into_items(
        groups,
        len(lens),
        members_per_item=members_per_item,
        num_items=num_items,
        max_parts=max_parts,
        tile=tile,
        min_part_tokens=min_tokens,
    )
    assert num_parts.max(initial=0) <= max_parts
    ranges: dict[int, list[tuple[int, int, int]]] = {seq: [] for seq in range(len(lens))}
    for item in items:
        assert 1 <= item.num_members <= members_per_item
        for seq in members[item.first_member : item.first_member + item.num_members].tolist():
            blocks = slice(item.first_token // BLOCK_SIZE, -(-item.end_token // BLOCK_SIZE))
            assert (tables[seq, blocks] == tables[item.reader, blocks]).all()
            ranges[seq].append((item.part, item.first_token, item.end_token))
    for seq, parts in ranges.items():
        parts.sort()
        assert [part for part, _, _ in parts] == list(range(num_parts[seq])), "parts are numbered without a gap"
        ends = [0, *(end for _, _, end in parts)]
        assert [first for _, first, _ in parts] == ends[:-1], "tokens follow without a gap"
        assert ends[-1] == max((g.end_token for g in groups if seq in g.members), default=0)


def test_work_is_cut_evenly() -> None:
    group = PrefixGroup(np.arange(64), 0, 2048)
    items, _, num_parts = cut_into_items(
        [group], 64, members_per_item=32, num_items=8, max_parts=8, tile=64, min_part_tokens=256
    )
    assert {(item.num_members, item.end_token - item.first_token) for item in items} == {(32, 512)}
    assert len(items) == 8
    assert (num_parts == 4).all()
