"""What users hand over as prompts and sampling parameters, as the engine wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from nanovllm.errors import ModelError, RequestError, UserError
from nanovllm.llm.tokenizer import Tokenizer
from nanovllm.sampling_params import SamplingParams

Prompt = str | Sequence[int]
"""A text, or the ids of its tokens."""

Conversation = Sequence[Mapping[str, Any]]
"""Messages, each with a ``role`` and a ``content``."""


class TokenizedPrompt(NamedTuple):
    """A prompt's text, None where token ids were given, and its token ids."""

    text: str | None
    token_ids: Sequence[int]


def read_prompts(prompts: Any, tokenizer: Tokenizer) -> list[TokenizedPrompt]:
    """A ``Prompt`` or several, texts and token ids mixed. Raises ``UserError`` for anything else."""
    if isinstance(prompts, str) or _is_token_ids(prompts):
        return [_read_prompt(prompts, tokenizer, "prompts")]
    if not _is_sequence(prompts):
        raise UserError(f"prompts is a {type(prompts).__name__}: a text, a list of token ids, or a list of such")
    return [_read_prompt(prompt, tokenizer, f"prompts[{index}]") for index, prompt in enumerate(prompts)]


def _read_prompt(prompt: Any, tokenizer: Tokenizer, name: str) -> TokenizedPrompt:
    if isinstance(prompt, str):
        return TokenizedPrompt(prompt, _encode(prompt, tokenizer, name))
    if not _is_sequence(prompt):
        raise UserError(f"{name} is a {type(prompt).__name__}: a text or a list of token ids is wanted")
    return TokenizedPrompt(None, prompt)


def _encode(text: str, tokenizer: Tokenizer, name: str, *, add_special_tokens: bool = True) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{name} is no valid text: character {error.start} is half of a surrogate pair") from None
    # Not verbose: how long a prompt may be is for the engine to say.
    return tokenizer.encode(text, add_special_tokens=add_special_tokens, verbose=False)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_token_ids(value: Any) -> bool:
    return _is_sequence(value) and len(value) > 0 and all(isinstance(item, Integral) for item in value)


def is_chat(prompts: Any) -> bool:
    """Whether these are messages, or conversations of such, rather than prompts."""
    first = _first(prompts)
    return isinstance(first, Mapping) or isinstance(_first(first), Mapping)


def _first(value: Any) -> Any:
    return value[0] if _is_sequence(value) and len(value) > 0 else None


def read_conversations(messages: Any, tokenizer: Tokenizer, **template_options: Any) -> list[TokenizedPrompt]:
    """A ``Conversation`` or several, written out by the tokenizer's chat template.

    Raises ``ModelError`` if there is no template, ``UserError`` for what is no conversation, ``RequestError`` for
    one that the template refuses.
    """
    if not tokenizer.chat_template and not template_options.get("chat_template"):
        raise ModelError(
            "this model's tokenizer has no chat template: give one as chat_template=, or write the prompt "
            "yourself and call generate()"
        )
    if not _is_sequence(messages):
        raise UserError(f"messages is a {type(messages).__name__}: a list of messages, or a list of such lists")
    conversations = [messages] if isinstance(_first(messages), Mapping) else messages
    return [
        _render(conversation, tokenizer, f"conversation {index}", template_options)
        for index, conversation in enumerate(conversations)
    ]


def _render(conversation: Any, tokenizer: Tokenizer, name: str, options: dict[str, Any]) -> TokenizedPrompt:
    from jinja2 import TemplateError

    if not _is_sequence(conversation) or not conversation:
        raise UserError(f"{name} is {conversation!r}: a list of at least one message is wanted")
    for message in conversation:
        if not isinstance(message, Mapping) or "role" not in message:
            raise UserError(f"{name} holds {message!r}: a message has a 'role' and a 'content'")
    options = {"add_generation_prompt": True, **options}
    try:
        text = tokenizer.apply_chat_template(conversation, tokenize=False, **options)
    except (TemplateError, TypeError, ValueError) as error:
        raise RequestError("bad_messages", f"{name} does not fit the chat template: {error}") from error
    # The template has written the special tokens already.
    return TokenizedPrompt(text, _encode(text, tokenizer, name, add_special_tokens=False))


def pair_params(
    sampling_params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams]:
    """One ``SamplingParams`` for each prompt. Raises ``UserError`` where they don't match."""
    if sampling_params is None or isinstance(sampling_params, SamplingParams):
        return [sampling_params or SamplingParams()] * num_prompts
    if not _is_sequence(sampling_params) or not all(isinstance(item, SamplingParams) for item in sampling_params):
        raise UserError("sampling_params must be a SamplingParams, or a list with one for each prompt")
    if len(sampling_params) != num_prompts:
        raise UserError(
            f"there are {num_prompts} prompts but {len(sampling_params)} sampling_params: give one for all, or "
            "one for each prompt"
        )
    return list(sampling_params)
