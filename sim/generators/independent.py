"""Requests that know nothing of each other, except perhaps a prefix that several of them begin with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from nanovllm.checks import check_whole_number, is_number
from nanovllm.errors import ConfigError
from sim.generators.arrivals import Arrivals, at_once
from sim.generators.lengths import Length
from sim.workload import WorkloadRequest


@dataclass(frozen=True, kw_only=True)
class SharedPrefixes:
    """So many prefixes of so many tokens: a request begins with one of them, each equally often."""

    num_prefixes: int
    prefix_len: int
    share: float = 1.0
    """Share of the requests that begin with one."""

    def __post_init__(self) -> None:
        check_whole_number("num_prefixes", self.num_prefixes, 1)
        check_whole_number("prefix_len", self.prefix_len, 1)
        if not is_number(self.share) or not 0 <= self.share <= 1:
            raise ConfigError("share", self.share, "a number from 0 to 1")


def independent_requests(
    num_requests: int | None,
    *,
    prompt_len: Length,
    output_len: Length,
    arrivals: Arrivals | None = None,
    prefixes: SharedPrefixes | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
) -> Iterator[WorkloadRequest]:
    """``num_requests`` requests (None: without end) in order of arrival, with ids 0, 1, 2 …

    ``prompt_len`` does not count the shared prefix. Without ``max_tokens`` each request generates all of its
    ``output_len`` tokens and the scheduler knows it; with it, the scheduler is told ``max_tokens``, and ``output_len``
    ends the request. ``arrivals``: by default all are there at the start.
    """
    for name, value in (("num_requests", num_requests), ("max_tokens", max_tokens)):
        if value is not None:
            check_whole_number(name, value, 1)
    arrivals = at_once() if arrivals is None else arrivals
    return islice(_requests(prompt_len, output_len, arrivals, prefixes, max_tokens, seed), num_requests)


def _requests(
    prompt_len: Length,
    output_len: Length,
    arrivals: Arrivals,
    prefixes: SharedPrefixes | None,
    max_tokens: int | None,
    seed: int,
) -> Iterator[WorkloadRequest]:
    of_prompts, of_outputs, of_prefixes = (Random(f"{what} {seed}") for what in ("prompts", "outputs", "prefixes"))
    for index, arrival in enumerate(arrivals(Random(f"arrivals {seed}"))):
        num_output_tokens = output_len(of_outputs)
        number = _draw_prefix(prefixes, of_prefixes)
        prefix_len = 0 if prefixes is None or number is None else prefixes.prefix_len
        yield WorkloadRequest(
            id=index,
            prompt_len=prefix_len + prompt_len(of_prompts),
            prefix=None if number is None else f"prefix-{number}",
            prefix_len=prefix_len or None,
            max_tokens=max_tokens or num_output_tokens,
            output_len=min(num_output_tokens, max_tokens) if max_tokens else None,
            **arrival._asdict(),
        )


def _draw_prefix(prefixes: SharedPrefixes | None, rng: Random) -> int | None:
    if prefixes is None or rng.random() >= prefixes.share:
        return None
    return rng.randrange(prefixes.num_prefixes)
