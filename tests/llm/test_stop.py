"""Stop texts, found wherever the pieces of the text begin and end."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from nanovllm.llm.detokenizer import TextDecoder
from nanovllm.llm.stop import StopFinder
from nanovllm.llm.text_stream import TextStream
from tests.llm.support import tokenizer

few_letters = st.text("ab", max_size=20)
stop_texts = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple)


def cut_by_definition(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Reading character by character: the text before the first stop text that is complete."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def push_all(pieces: list[str], stops: tuple[str, ...]) -> tuple[list[str], str | None]:
    finder, given_out = StopFinder(stops), []
    for piece in pieces:
        given_out.append(finder.push(piece))
        if finder.found is not None:
            return given_out, finder.found
    return [*given_out, finder.flush()], None


@given(text=few_letters, stops=stop_texts, cuts=st.sets(st.integers(0, 20)))
@example(text="abab", stops=("abab", "b"), cuts=set())
@example(text="aab", stops=("ab",), cuts={1, 2})
def test_the_cut_does_not_depend_on_the_pieces(text: str, stops: tuple[str, ...], cuts: set[int]) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(borders)]
    given_out, found = push_all(pieces, stops)
    assert ("".join(given_out), found) == cut_by_definition(text, stops)


def test_no_more_is_held_back_than_may_become_a_stop_text() -> None:
    finder = StopFinder(("\n\nUser:",))
    pieces = ["Hi", "\n", "\n", "Us", "eful", "\n\n", "User", ": x"]
    assert [finder.push(piece) for piece in pieces] == ["Hi", "", "", "", "\n\nUseful", "", "", ""]
    assert finder.found == "\n\nUser:"


def test_text_after_a_stop_text_is_a_mistake_of_ours() -> None:
    finder = StopFinder(("a",))
    finder.push("a")
    with pytest.raises(AssertionError, match=re.escape("text was pushed after the stop text 'a'")):
        finder.push("b")


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
@given(text=st.text("ab \n🙂ß", max_size=12), stop=st.text("ab \n🙂ß", min_size=1, max_size=3))
def test_a_stop_text_across_tokens_ends_the_stream(kind: str, text: str, stop: str) -> None:
    token_ids = tokenizer(kind).encode(text)
    decoder = TextDecoder(tokenizer(kind))
    stream, seen = TextStream(decoder, (stop,)), []
    for count, token_id in enumerate(token_ids, 1):
        has_ended = stream.push(token_id)
        seen.append(stream.text)
        # With the very token that completes it, even where that token's text is still open.
        assert has_ended == (stop in decoder.decode(token_ids[:count]))
        if has_ended:
            break
    seen.append(stream.finish())
    assert stream.text == cut_by_definition(decoder.decode(token_ids), (stop,))[0]
    assert all(after.startswith(before) for before, after in pairwise(seen))


@given(token_ids=st.lists(st.integers(0, 471), max_size=20), stop=st.sampled_from(["\ufffd", "e", "a\ufffd"]))
def test_bytes_that_are_no_text_can_be_cut_too(token_ids: list[int], stop: str) -> None:
    decoder = TextDecoder(tokenizer())
    stream = TextStream(decoder, (stop,))
    for token_id in token_ids:
        if stream.push(token_id):
            break
    assert stream.finish() == cut_by_definition(decoder.decode(token_ids), (stop,))[0]
