"""Drawn token ids: the same everywhere, equal where they are to be shared, different where not."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import ConfigError
from sim.token_ids import answer_token_ids, draw_token_ids, own_token_ids, prefix_token_ids
from sim.workload import Prompts, WorkloadRequest, to_requests


def test_ids_never_change() -> None:
    assert draw_token_ids("a stream", 6) == [82, 7298, 1755, 11146, 4058, 8955]
    assert own_token_ids(7, 3) == [14, 11561, 2608]
    assert prefix_token_ids("system", 3) == [14771, 6129, 4497]
    assert answer_token_ids("a", 3) == [2698, 14294, 11726]


@given(source=st.text(), count=st.integers(0, 200), vocab_size=st.integers(2, 200_000))
def test_ids_are_in_the_vocabulary_and_a_longer_list_begins_like_a_shorter_one(
    source: str, count: int, vocab_size: int
) -> None:
    ids = draw_token_ids(source, count, vocab_size)
    assert len(ids) == count
    assert all(0 <= token < vocab_size for token in ids)
    assert draw_token_ids(source, count + 10, vocab_size)[:count] == ids


@given(vocab_size=st.integers(2, 1000), seed=st.integers(0, 5))
def test_not_even_the_first_token_is_shared(vocab_size: int, seed: int) -> None:
    first = [own_token_ids(index, 2, seed, vocab_size)[0] for index in range(vocab_size // 2)]
    assert len(set(first)) == len(first)
    assert all(0 <= token < vocab_size and token % 2 == 0 for token in first)
    assert all(token % 2 == 1 for token in prefix_token_ids("system", 50, seed, vocab_size))


def test_all_ids_of_the_range_are_drawn() -> None:
    assert set(draw_token_ids("", 2000, 64)) == set(range(64))


def prompts_of(*requests: WorkloadRequest, prompts: Prompts | None = None) -> list[list[int]]:
    return [list(request.prompt_token_ids) for request in to_requests(requests, prompts)]


def test_requests_share_a_named_prefix_and_nothing_else() -> None:
    short = WorkloadRequest(id="short", prompt_len=40, prefix="system", prefix_len=20, max_tokens=1)
    long = WorkloadRequest(id="long", prompt_len=40, prefix="system", prefix_len=30, max_tokens=1)
    other = WorkloadRequest(id="other", prompt_len=40, prefix="another", prefix_len=20, max_tokens=1)
    alone = WorkloadRequest(id="alone", prompt_len=40, max_tokens=1)
    all_shared = WorkloadRequest(id="shared", prompt_len=20, prefix="system", prefix_len=20, max_tokens=1)
    a, b, c, d, e = prompts_of(short, long, other, alone, all_shared)
    assert [len(ids) for ids in (a, b, c, d, e)] == [40, 40, 40, 40, 20]
    assert a[:20] == b[:20] == e
    assert a[20] != b[20]  # its own token against one of the prefix
    assert a[:20] != c[:20]
    assert d[0] not in (a[0], c[0])


def test_prompts_depend_on_seed_and_place_only() -> None:
    request = WorkloadRequest(id=0, prompt_len=40, max_tokens=1)
    assert prompts_of(request) == prompts_of(request)
    first, second = prompts_of(request, request)
    assert first != second
    assert prompts_of(request, prompts=Prompts(seed=1)) != [first]


def test_given_ids_are_kept_and_text_needs_a_tokenizer() -> None:
    given_ids = WorkloadRequest(id=0, prompt=[5, 3], max_tokens=1)
    text = WorkloadRequest(id=1, text="abc", max_tokens=1)
    assert prompts_of(given_ids, text, prompts=Prompts(tokenize=lambda words: [ord(c) for c in words])) == [
        [5, 3],
        [97, 98, 99],
    ]
    with pytest.raises(ConfigError, match="text='abc' is not allowed: there is no tokenizer"):
        prompts_of(text)


def test_one_id_is_too_few_to_tell_requests_apart() -> None:
    with pytest.raises(ConfigError, match=r"^vocab_size=1 is not allowed: a whole number from 2 upward"):
        Prompts(vocab_size=1)
    assert prompts_of(WorkloadRequest(id=0, prompt_len=3, max_tokens=1), prompts=Prompts(vocab_size=2))
