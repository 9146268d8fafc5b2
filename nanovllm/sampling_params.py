"""How one request's tokens are drawn and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nanovllm.checks import MAX_SEED, MAX_TOKEN_ID, check_whole_number, is_number, is_whole_number
from nanovllm.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Checked on construction; a wrong value raises ``ConfigError``.

    Filters apply in the order temperature, top-k, top-p, min-p, to the distribution left by the one before.
    """

    temperature: float = 1.0
    """Divides the logits. 0 means greedy: always the most likely token."""
    max_tokens: int = 64
    """The most tokens to generate."""
    top_k: int = 0
    """Keep the k most likely tokens. 0 or -1 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose probabilities reach this sum."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the most likely one."""
    seed: int | None = None
    """Makes this request's draws repeatable, whatever runs beside it. None: drawn from the engine's seed."""
    stop: tuple[str, ...] = ()
    """Texts that end the request; the text returned is cut before the first of them. A single text will do."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the request, besides the model's own end-of-sequence ids."""
    ignore_eos: bool = False
    """Go on to ``max_tokens`` even when an end-of-sequence token is drawn."""

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        texts, ids = "texts of at least one character", f"token ids, whole numbers from 0 to {MAX_TOKEN_ID}"
        self._make_tuple("stop", lambda text: isinstance(text, str) and text != "", texts)
        self._make_tuple("stop_token_ids", lambda token: is_whole_number(token, 0, MAX_TOKEN_ID), ids)
        self._check_numbers()
        if not isinstance(self.ignore_eos, bool):
            raise ConfigError("ignore_eos", self.ignore_eos, "true or false")

    def _make_tuple(self, name: str, is_allowed: Callable[[Any], bool], allowed: str) -> None:
        values = getattr(self, name)
        try:
            values = () if values is None else tuple(values)
        except TypeError:
            raise ConfigError(name, values, allowed) from None
        if not all(map(is_allowed, values)):
            raise ConfigError(name, values, allowed)
        object.__setattr__(self, name, values)

    def _check_numbers(self) -> None:
        if not is_number(self.temperature) or self.temperature < 0:
            raise ConfigError("temperature", self.temperature, "a number from 0 (greedy) upward")
        check_whole_number("max_tokens", self.max_tokens, 1)
        check_whole_number("top_k", self.top_k, -1, allowed="a whole number from 1 upward, or 0 or -1 for all tokens")
        if not is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise ConfigError("top_p", self.top_p, "a number above 0, at most 1")
        if not is_number(self.min_p) or not 0 <= self.min_p <= 1:
            raise ConfigError("min_p", self.min_p, "a number from 0 to 1")
        if self.seed is not None:
            check_whole_number("seed", self.seed, 0, MAX_SEED, allowed="a whole number from 0 upward, or none")
