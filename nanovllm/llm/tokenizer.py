"""What the engine asks of a tokenizer, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence as TokenIds
from pathlib import Path
from typing import Any, Protocol

from nanovllm.errors import ModelError


class Tokenizer(Protocol):
    """The part of the tokenizers of ``transformers`` that is used here."""

    chat_template: Any
    eos_token_id: Any

    def encode(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> list[int]:
        """The ids of a text's tokens. ``verbose``: warn of a text that is long for the model."""
        ...

    def decode(
        self, token_ids: TokenIds[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """The text of token ids. Ids outside the vocabulary have none."""
        ...

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int | None]:
        """The ids of tokens by name; that of the unknown token, or None, for names not in the vocabulary."""
        ...

    def convert_ids_to_tokens(self, ids: int) -> str:
        """The name of a token."""
        ...

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, **options: Any) -> Any:
        """A conversation as the text that the model was trained on."""
        ...


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a model's directory. Raises ``ModelError`` if there is none that can be used."""
    from transformers import AutoTokenizer

    from nanovllm.runner.model_directory import find_tokenizer

    file = find_tokenizer(path)
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # of a broken file, tokenizers says no more than that
        reason = " ".join(str(error).split())
        raise ModelError(f"{file}: the tokenizer cannot be loaded ({type(error).__name__}: {reason})") from error
    return tokenizer
