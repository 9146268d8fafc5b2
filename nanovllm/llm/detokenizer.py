"""Token ids to text, all at once or token by token.

A token is not a piece of text: a character may be spread over several tokens, and what a token means may depend on
the ones before it. So text is given out only once no later token can change it, and the pieces given out always add
up to the text of all tokens decoded at once.
"""

from __future__ import annotations

from collections.abc import Sequence as TokenIds

from nanovllm.llm.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What decoders write for bytes that are not, or not yet, a character."""


class TextDecoder:
    """A tokenizer's way back: special tokens are left out, and the text is not tidied up."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.byte_token_ids = _find_byte_tokens(tokenizer)
        """Tokens that stand for one byte each, for what the vocabulary has no other token (byte fallback)."""
        self._single_texts: dict[int, str] = {}

    def decode(self, token_ids: TokenIds[int]) -> str:
        """The text of these tokens."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def decode_single(self, token_id: int) -> str:
        """The text of a token that stands alone. Each is decoded once: most tokens are asked for often."""
        text = self._single_texts.get(token_id)
        if text is None:
            text = self._single_texts[token_id] = self.decode([token_id])
        return text


def _find_byte_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    ids = tokenizer.convert_tokens_to_ids(names)
    known = [(name, token_id) for name, token_id in zip(names, ids, strict=True) if token_id is not None]
    # A name that is not in the vocabulary may come back as the id of the unknown token.
    return frozenset(token_id for name, token_id in known if tokenizer.convert_ids_to_tokens(token_id) == name)


class Detokenizer:
    """Decodes one sequence token by token.

    Only a window of the newest tokens is decoded: those whose text is still open, and before them the ones given out
    last, because the text of a token (its leading space, say) depends on its neighbour. Text stays open

    - while it ends in a replacement character: the rest of the character may follow;
    - while the last token is a byte token: a run of them is decoded as a whole, and one wrong byte spoils it all.

    ``tokenizers.DecodeStream`` does less: it neither closes such a run nor gives out what is open in the end.
    """

    def __init__(self, decoder: TextDecoder) -> None:
        self.pending = ""
        """Text of the newest tokens that a later token may still change."""
        self._decoder = decoder
        self._window: list[int] = []
        self._num_closed_tokens = 0
        self._closed_text = ""

    def push(self, token_id: int) -> str:
        """Take in the next token. Returns the text that has become certain, often empty."""
        self._window.append(token_id)
        text = self._decoder.decode(self._window)
        opened = text[len(self._closed_text) :]
        if opened == self.pending:
            if not opened and self._closed_text:
                self._window.pop()  # a special token: it has no text, whatever follows
            return ""
        self.pending = opened
        if text.endswith(REPLACEMENT_CHARACTER) or token_id in self._decoder.byte_token_ids:
            return ""
        del self._window[: self._num_closed_tokens]
        self._num_closed_tokens = len(self._window)
        is_single = len(self._window) == 1
        self._closed_text = self._decoder.decode_single(token_id) if is_single else self._decoder.decode(self._window)
        self.pending = ""
        return opened

    def flush(self) -> str:
        """The end of the text: what is pending, now that no token follows."""
        rest, self.pending = self.pending, ""
        return rest
