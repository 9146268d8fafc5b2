"""Every error a user can meet. One line each: what was wrong, where, and what is allowed.

Three outcomes are kept apart throughout the project: a caller's mistake raises an error from this module,
"not now" is a return value that changed nothing, and a broken rule of our own is an ``assert`` with a sentence.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


_MOST_CHARACTERS = 60


def shown(value: object) -> str:
    """A value as an error tells it: of a long one, no more than it takes to recognise it."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _MOST_CHARACTERS
    return short.repr(value)


# Control characters, line separators, changes of the writing direction, halves of surrogate pairs.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    """The text with nothing in it that a terminal would obey: ``\\n``, ``\\x1b`` ... stand for such characters, but for
    those to ``keep``. File names, ids and answers come from anywhere."""
    return _OBEYED.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text)


class NanoVllmError(Exception):
    """Base of all errors raised on purpose by this project. The message is one printable line. It can be
    sent from one process to another."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def __reduce__(self) -> tuple[Callable[..., NanoVllmError], tuple[object, ...], dict[str, object]]:
        return _remade, (type(self), *self.args), self.__dict__


def _remade(kind: type[NanoVllmError], *args: object) -> NanoVllmError:
    """An error that came in pieces: its own ``__init__`` would take others."""
    error = kind.__new__(kind)
    error.args = args
    return error


class UserError(NanoVllmError, ValueError):
    """A caller's mistake. Command-line tools print its one line and exit with code 2."""


class ConfigError(UserError):
    """An engine or sampling option has a value that is not allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        name = field if field.isidentifier() and len(field) <= _MOST_CHARACTERS else shown(field)
        super().__init__(f"{name}={shown(value)} is not allowed: {allowed}")


class RequestError(UserError):
    """A request that can never run. The requests beside it go on.

    ``reason`` is the word that the trace records, ``needed_blocks`` and ``num_blocks`` are the numbers behind
    it (0 where the size of the KV pool does not matter).
    """

    def __init__(self, reason: str, message: str, needed_blocks: int = 0, num_blocks: int = 0) -> None:
        self.reason = reason
        self.needed_blocks = needed_blocks
        self.num_blocks = num_blocks
        super().__init__(message)


class FileError(UserError):
    """A file that cannot be used: says which file, which line (1-based, where known) and what is wrong."""

    def __init__(self, path: object, message: str, line: int | None = None) -> None:
        self.path = str(path)
        self.line = line
        place = self.path if line is None else f"{self.path}:{line}"
        super().__init__(f"{place}: {message}")

    @classmethod
    def unwritable(cls, path: object, error: OSError) -> Self:
        """The error for a file that the system doesn't let us write."""
        return cls(path, f"cannot be written: {error.strerror}")

    @classmethod
    def unreadable(cls, path: object, error: OSError) -> Self:
        """The error for a file that the system doesn't let us read."""
        return cls(path, f"cannot be read: {error.strerror}")


class CostTableError(FileError):
    """Measured latencies, or coefficients fitted to some, that are missing, foreign or impossible."""


class WorkloadError(FileError):
    """A workload file with a mistake in it."""


class TraceError(FileError):
    """A trace that is empty, foreign, of another schema, or contradicts itself."""


class ContradictionError(TraceError):
    """An event that cannot have happened after those before it. ``law``: which rule of ``nanovllm.trace.state.laws`` it
    breaks; ``sentence``: how, without the place; ``step``: None between steps."""

    def __init__(self, path: object, sentence: str, line: int, law: str, step: int | None) -> None:
        self.sentence = sentence
        self.law = law
        super().__init__(path, sentence if step is None else f"step {step}: {sentence}", line)


class ModelError(UserError):
    """A model that is missing, incomplete or of a kind that is not supported."""


class MemoryPoolError(UserError):
    """Too little memory for the weights and at least one request's KV blocks."""


class StepError(NanoVllmError):
    """A backend could not compute one step (out of memory, say). Fails the step's requests, not the engine."""


class WorkerError(NanoVllmError):
    """The process of another rank has ended, or ranks can no longer work together: the engine cannot go on. Nobody's
    mistake as far as is known, so command-line tools print its one line and exit with code 1."""
