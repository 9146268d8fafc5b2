"""One line of a workload file: what a request asks for, checked when it is made."""

from __future__ import annotations

from array import array

import msgspec

from nanovllm.checks import (
    MAX_TOKEN_ID,
    check_seconds,
    check_whole_number,
    is_whole_number,
    whole_number_from,
)
from nanovllm.errors import ConfigError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import RequestId
from sim.token_ids import MAX_DRAWN_TOKENS

MAX_ARRIVAL_S = 10**9
"""Thirty years: much later, the seconds of a float could not tell one step from the next."""
MAX_PRIORITY = 10**6
_TEXT = "text of at least one character"
_TOKEN_IDS = f"token ids, whole numbers from 0 to {MAX_TOKEN_ID}"
_NO_DELAY = 0.0


class WorkloadRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request as a workload file has it. None stands for a field that is absent.

    The prompt is ``prompt`` or ``text``, or ``prompt_len`` ids that no other request shares, of which the first
    ``prefix_len`` may be those of the shared prefix named ``prefix``. Raises ``ConfigError`` naming field, value
    and what is allowed.
    """

    id: RequestId
    max_tokens: int
    """The most tokens to generate: all that the scheduler is told about the length of the answer."""
    prompt: list[int] | None = None
    prompt_len: int | None = None
    prefix: str | None = None
    prefix_len: int | None = None
    text: str | None = None
    output_len: int | None = None
    """How many tokens a simulated run generates: the last of them is an end-of-sequence token."""
    arrival: float | None = None
    """Seconds from the start; None: 0, unless there is an ``arrival_step`` or ``after``."""
    arrival_step: int | None = None
    """Handed over before this step, whatever the time."""
    after: tuple[RequestId, ...] = ()
    """It arrives when the last of these requests has ended, in whatever way, and ``delay`` has passed. A single id will
    do. They stand before it, and arrive in seconds."""
    delay: float = _NO_DELAY
    """Seconds; only with ``after``."""
    priority: int = 0
    """For the policy ``priority``: the lower, the earlier."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check_id("id", self.id)
        params = self.sampling_params()  # refuses wrong values of the sampling fields and of max_tokens
        msgspec.structs.force_setattr(self, "stop", params.stop)
        msgspec.structs.force_setattr(self, "stop_token_ids", params.stop_token_ids)
        self._check_prompt()
        self._check_output_len()
        self._check_arrival()
        self._check_after()
        check_whole_number("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)

    def sampling_params(self) -> SamplingParams:
        """The part that says how tokens are drawn and when the request ends."""
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
        )

    @property
    def num_prompt_tokens(self) -> int | None:
        """Length of the prompt in tokens; None for a ``text``, which only a tokenizer can measure."""
        return len(self.prompt) if self.prompt is not None else self.prompt_len

    # ---- checks ----------------------------------------------------------------------------------------------

    def _check_prompt(self) -> None:
        given = [name for name in ("prompt", "prompt_len", "text") if getattr(self, name) is not None]
        if not given:
            raise ConfigError("prompt", None, "one of prompt, prompt_len and text is needed")
        if len(given) > 1:
            name = given[1]
            raise ConfigError(name, getattr(self, name), f"{given[0]} is there already, and only one of them may be")
        if self.prompt is not None:
            _check_token_ids(self.prompt)
        if self.prompt_len is not None:
            check_whole_number("prompt_len", self.prompt_len, 1, MAX_DRAWN_TOKENS)
        if self.text is not None and not (isinstance(self.text, str) and self.text):
            raise ConfigError("text", self.text, _TEXT)
        self._check_prefix()

    def _check_prefix(self) -> None:
        if self.prefix is None and self.prefix_len is None:
            return
        if not (isinstance(self.prefix, str) and self.prefix):
            raise ConfigError("prefix", self.prefix, f"{_TEXT}, the name of the prefix that prefix_len belongs to")
        check_whole_number("prefix_len", self.prefix_len, 0, allowed=f"prefix needs it, {whole_number_from(0)}")
        if self.prompt_len is None:
            raise ConfigError("prefix", self.prefix, "only together with prompt_len")
        if self.prefix_len is not None and self.prefix_len > self.prompt_len:
            raise ConfigError("prefix_len", self.prefix_len, f"at most prompt_len={self.prompt_len}")

    def _check_output_len(self) -> None:
        if self.output_len is None:
            return
        check_whole_number("output_len", self.output_len, 1)
        if self.output_len > self.max_tokens:
            raise ConfigError("output_len", self.output_len, f"at most max_tokens={self.max_tokens}")
        if self.ignore_eos:
            raise ConfigError("output_len", self.output_len, "not with ignore_eos, which goes on to max_tokens")

    def _check_arrival(self) -> None:
        if self.arrival is not None:
            _check_time("arrival", self.arrival)
            if self.arrival_step is not None:
                raise ConfigError("arrival_step", self.arrival_step, "not together with arrival")
        if self.arrival_step is not None:
            check_whole_number("arrival_step", self.arrival_step, 0)

    def _check_after(self) -> None:
        after = () if self.after is None else self.after
        ids = tuple(after) if isinstance(after, (list, tuple)) else (after,)
        for index, awaited in enumerate(ids):
            _check_id("after", awaited)
            if awaited == self.id or awaited in ids[:index]:
                raise ConfigError("after", awaited, "other requests, each once")
        msgspec.structs.force_setattr(self, "after", ids)
        _check_time("delay", self.delay)
        if self.delay == 0:
            msgspec.structs.force_setattr(
                self, "delay", _NO_DELAY
            )  # this one is left out of files, an equal one is not
        if not ids:
            if self.delay:
                raise ConfigError("delay", self.delay, "only together with after")
            return
        for name in ("arrival", "arrival_step"):
            if getattr(self, name) is not None:
                raise ConfigError(name, getattr(self, name), "not together with after")


def _check_id(name: str, value: object) -> None:
    if not (isinstance(value, str) and value):
        check_whole_number(name, value, 0, allowed=f"{_TEXT}, or {whole_number_from(0)}")


def _check_time(name: str, value: float) -> None:
    check_seconds(name, value)
    if value > MAX_ARRIVAL_S:
        raise ConfigError(name, value, f"at most {MAX_ARRIVAL_S} seconds")


def _check_token_ids(ids: object) -> None:
    if not isinstance(ids, list) or not ids:
        raise ConfigError("prompt", ids, f"a list of one or more {_TOKEN_IDS}")
    try:
        array("I", ids)
        only_ints = set(map(type, ids)) == {int}
    except (TypeError, OverflowError):
        only_ints = False
    if not only_ints:
        wrong = next(value for value in ids if not is_whole_number(value, 0, MAX_TOKEN_ID))
        raise ConfigError("prompt", wrong, f"a list of {_TOKEN_IDS}")
