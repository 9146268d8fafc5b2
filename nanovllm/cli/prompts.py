"""What ``generate`` is asked: prompts from the command line, a file or standard input, as requests of a workload."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from nanovllm.errors import FileError, UserError
from nanovllm.limited_reading import read_lines

if TYPE_CHECKING:
    from nanovllm.llm.tokenizer import Tokenizer
    from nanovllm.sampling_params import SamplingParams
    from sim.workload import WorkloadRequest

WORKLOAD_SUFFIXES = (".jsonl", ".jsonl.gz")
_UNDECODED = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes that it cannot decode."""


def read_prompts(arguments: list[str], file: Path | None, sampling: SamplingParams) -> list[WorkloadRequest]:
    """The prompts given as arguments, those of ``file``, or else those of standard input, one a line.

    A file whose name ends in ``.jsonl`` is a workload: each of its lines has sampling fields of its own. Texts are
    numbered from 0. Raises ``UserError`` if there are none, ``FileError`` for a file that cannot be used.
    """
    if arguments and file is not None:
        raise UserError("prompts are given both as arguments and by --file: one of them is needed")
    if file is not None and file.name.endswith(WORKLOAD_SUFFIXES):
        from sim.workload import read_workload

        return read_workload(file, allow_text=True)
    for number, text in enumerate(arguments, start=1):
        if _UNDECODED.search(text):
            raise UserError(f"prompt {number} is not text in UTF-8")
    texts = arguments or _lines(file)
    if not texts:
        raise UserError(f"there is no prompt in {file or 'the standard input'}: one a line is needed")
    return _requests(texts, sampling)


def _lines(file: Path | None) -> list[str]:
    if file is None:
        if sys.stdin.isatty():
            raise UserError("there is no prompt: give some as arguments, by --file, or one a line on standard input")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")
        return _without_blanks(sys.stdin, "standard input")
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
            return _without_blanks(lines, file)
    except OSError as error:
        raise FileError.unreadable(file, error) from None


def _without_blanks(lines: TextIO, source: object) -> list[str]:
    kept = []
    try:
        for number, line in enumerate(read_lines(lines), start=1):
            text = line.removeprefix("\ufeff") if number == 1 else line  # some editors put one
            if _UNDECODED.search(text):
                raise FileError(source, "is not text in UTF-8", number)
            if text.strip():
                kept.append(text.rstrip("\r\n"))
    except OSError as error:
        raise FileError.unreadable(source, error) from None
    return kept


def _requests(texts: Iterable[str], sampling: SamplingParams) -> list[WorkloadRequest]:
    from sim.workload import WorkloadRequest

    return [WorkloadRequest(id=index, text=text, **asdict(sampling)) for index, text in enumerate(texts)]


def text_encoder(tokenizer: Tokenizer, *, chat: bool | None, system: str | None) -> Callable[[str], list[int]]:
    """A function that makes token ids of a prompt's text.

    ``chat``: as a user's message in the chat template; None: if the model has one. ``system``: a message to stand
    before it. Raises ``ModelError`` for a template that is missing, ``UserError`` for a system message without it.
    """
    from nanovllm.llm.prompts import read_conversations, read_prompts as read_plain_prompts

    if chat is None:
        chat = bool(tokenizer.chat_template)
    if not chat:
        if system is not None:
            raise UserError("--system needs the chat template: it does not go with --no-chat")
        return lambda text: list(read_plain_prompts(text, tokenizer)[0].token_ids)
    before = [] if system is None else [{"role": "system", "content": system}]

    def encode(text: str) -> list[int]:
        (prompt,) = read_conversations([[*before, {"role": "user", "content": text}]], tokenizer)
        return list(prompt.token_ids)

    return encode
