"""Text out, token by token: what is given out is never taken back, and adds up."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, strategies as st

from nanovllm.llm.detokenizer import REPLACEMENT_CHARACTER, Detokenizer, TextDecoder
from tests.llm.support import END, KINDS, tokenizer


def pieces_of(token_ids: list[int], kind: str = "byte level") -> list[str]:
    detokenizer = Detokenizer(TextDecoder(tokenizer(kind)))
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


def some_token_ids(kind: str) -> st.SearchStrategy[list[int]]:
    """Any tokens, a few of them outside the vocabulary; of byte tokens, so many that runs and characters occur."""
    any_token = st.integers(0, tokenizer(kind).inner.get_vocab_size() + 2)
    byte_tokens = sorted(TextDecoder(tokenizer(kind)).byte_token_ids)
    tokens = any_token | st.sampled_from(byte_tokens) if byte_tokens else any_token
    characters = st.text(max_size=3).map(lambda text: tokenizer(kind).encode(text))
    return st.lists(st.lists(tokens, max_size=4) | characters, max_size=12).map(lambda parts: list(chain(*parts)))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_pieces_add_up_to_the_text_of_all_tokens(kind: str, data: st.DataObject) -> None:
    token_ids = data.draw(some_token_ids(kind))
    assert "".join(pieces_of(token_ids, kind)) == TextDecoder(tokenizer(kind)).decode(token_ids)


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters=REPLACEMENT_CHARACTER)))
def test_characters_come_whole(kind: str, text: str) -> None:
    pieces = pieces_of(tokenizer(kind).encode(text), kind)
    assert "".join(pieces) == text
    assert not any(REPLACEMENT_CHARACTER in piece for piece in pieces)


def test_a_character_of_several_tokens_comes_with_its_last() -> None:
    token_ids = tokenizer().encode("a🧿")
    assert len(token_ids) == 4
    assert pieces_of(token_ids) == ["a", "", "", "🧿", ""]


def test_half_a_character_at_the_end_is_given_out_as_such() -> None:
    assert pieces_of(tokenizer().encode("a🧿")[:-1]) == ["a", "", "", REPLACEMENT_CHARACTER]


def test_a_run_of_byte_tokens_is_open_until_it_ends() -> None:
    newline, broken = tokenizer("byte fallback").convert_tokens_to_ids(["<0x0A>", "<0xFF>"])
    letter = tokenizer("byte fallback").convert_tokens_to_ids(["a"])[0]
    assert pieces_of([letter, newline, letter], "byte fallback") == ["a", "", "\na", ""]
    # One wrong byte spoils the run: had the new line been given out, it would have to be taken back.
    assert pieces_of([letter, newline, broken, letter], "byte fallback") == ["a", "", "", "��a", ""]


def test_spaces_between_words_are_kept_and_the_first_is_not() -> None:
    token_ids = tokenizer("byte fallback").encode("the dog and the dog")
    assert "".join(pieces_of(token_ids, "byte fallback")) == "the dog and the dog"
    assert pieces_of(token_ids, "byte fallback")[0] == "the"


def test_special_tokens_have_no_text() -> None:
    plain = tokenizer()
    end = plain.inner.token_to_id(END)
    assert pieces_of([end, *plain.encode("d"), end, end]) == ["", "d", "", "", ""]


@pytest.mark.parametrize("text", ["The quick brown fox 🙂 jumps. " * 20, "dog" + END * 100])
def test_only_a_window_of_tokens_is_decoded(text: str) -> None:
    class CountingDecoder(TextDecoder):
        longest = 0

        def decode(self, token_ids: list[int]) -> str:
            self.longest = max(self.longest, len(token_ids))
            return super().decode(token_ids)

    decoder = CountingDecoder(tokenizer())
    detokenizer = Detokenizer(decoder)
    for token_id in tokenizer().encode(text):
        detokenizer.push(token_id)
    assert decoder.longest <= 10
