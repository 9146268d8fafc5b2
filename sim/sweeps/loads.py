"""The loads of a sweep: requests from a file, or drawn ones, conversations or agents. Each makes its requests.

What is drawn depends on the seed and the load alone: cells of a sweep that differ in anything else see the same
requests, so that their differences are not those of chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from nanovllm.checks import check_positive, check_whole_number
from nanovllm.errors import ConfigError
from sim.generators import (
    Arrivals,
    Conversation,
    SharedPrefixes,
    SubAgents,
    ToolLoop,
    agents,
    at_once,
    gamma,
    independent_requests,
    parse_arrivals,
    parse_length,
    sessions,
)
from sim.readers.any_format import Reading
from sim.workload import WorkloadRequest

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_NUM_REQUESTS = 100


class Load(Protocol):
    """What comes, and when."""

    @property
    def rate(self) -> float | None:
        """Requests (or conversations) a second on average; None: as the load has it."""
        ...

    def requests(self, seed: int) -> Iterable[WorkloadRequest]:
        """The requests, in order of arrival. Raises ``UserError``."""
        ...

    def at_rate(self, rate: float) -> Self:
        """The same load, with its arrivals stretched or pressed together."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileLoad(Reading):
    """A workload file, or a public trace in its own format. Raises ``ConfigError``."""

    workload: str
    rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None:
            check_positive("rate", self.rate)
            if self.rate_scale != 1.0:
                raise ConfigError("rate_scale", self.rate_scale, "not together with rate")

    def requests(self, seed: int) -> Iterable[WorkloadRequest]:
        """Those of the file, which chance has no part in. Raises ``WorkloadError``, ``ConfigError``."""
        requests = self.read(Path(self.workload))
        return requests if self.rate is None else stretched(list(requests), self.rate)

    def at_rate(self, rate: float) -> FileLoad:
        """Its arrivals stretched to so many requests a second, ``rate_scale`` put aside."""
        return replace(self, rate=rate, rate_scale=1.0)


@dataclass(frozen=True, kw_only=True)
class _AtRate:
    """When requests come, or conversations and agents begin: at a rate, or as a text tells it."""

    rate: float | None = None
    arrival_cv: float = 1.0
    arrivals: str | None = None

    def at_rate(self, rate: float) -> Self:
        """The same draws, begun in another measure of time. What goes on within a conversation or an agent keeps its
        pace."""
        return replace(self, rate=rate, arrivals=None)

    def drawn_arrivals(self) -> Arrivals:
        """What the fields stand for together. Raises ``ConfigError``."""
        if self.arrivals is not None:
            if self.rate is not None or self.arrival_cv != 1.0:
                other = "arrival_cv" if self.rate is None else "rate"
                raise ConfigError("arrivals", self.arrivals, f"not together with {other}")
            return parse_arrivals("arrivals", self.arrivals)
        if self.rate is None:
            if self.arrival_cv != 1.0:
                raise ConfigError("arrival_cv", self.arrival_cv, "only together with rate")
            return at_once()
        check_positive("rate", self.rate)
        try:
            return gamma(self.rate, self.arrival_cv)
        except ConfigError as error:
            raise ConfigError("arrival_cv", error.value, error.allowed) from None


@dataclass(frozen=True, kw_only=True)
class DrawnLoad(_AtRate):
    """Independent requests, as ``nanovllm workload make`` makes them. Raises ``ConfigError``."""

    num_requests: int | None = None
    """As many as come; ``DEFAULT_NUM_REQUESTS`` if neither this nor ``load_duration_s`` is given."""
    load_duration_s: float | None = None
    """As many as come in so many seconds."""
    prompt_len: str = "uniform:100,1000"
    output_len: str = "uniform:100,1000"
    num_prefixes: int = 0
    prefix_len: int = 512
    prefix_share: float = 1.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_whole_number("num_prefixes", self.num_prefixes, 0)
        if self.load_duration_s is not None:
            check_positive("load_duration_s", self.load_duration_s, "a number of seconds")
            if self.num_requests is not None:
                raise ConfigError("load_duration_s", self.load_duration_s, "not together with num_requests")
            if self.rate is None:
                raise ConfigError("load_duration_s", self.load_duration_s, "only together with rate")
        self.requests(seed=0)  # refuses whatever is wrong; draws nothing yet

    def requests(self, seed: int) -> Iterable[WorkloadRequest]:
        """Drawn one by one, as they are taken."""
        prefixes = None
        if self.num_prefixes:
            prefixes = SharedPrefixes(
                num_prefixes=self.num_prefixes, prefix_len=self.prefix_len, share=self.prefix_share
            )
        num_requests = self.num_requests
        if num_requests is None and self.load_duration_s is None:
            num_requests = DEFAULT_NUM_REQUESTS
        requests = independent_requests(
            num_requests,
            prompt_len=parse_length("prompt_len", self.prompt_len),
            output_len=parse_length("output_len", self.output_len),
            arrivals=self.drawn_arrivals(),
            prefixes=prefixes,
            max_tokens=self.max_tokens,
            seed=seed,
        )
        end_s = math.inf if self.load_duration_s is None else self.load_duration_s
        return takewhile(lambda request: (request.arrival or 0.0) <= end_s, requests)


@dataclass(frozen=True, kw_only=True)
class SessionsLoad(_AtRate):
    """Conversations, as ``nanovllm workload make-sessions`` makes them; ``rate`` counts conversations. Raises
    ``ConfigError``."""

    num_sessions: int
    num_turns: str = "uniform:1,6"
    message_len: str = "lognormal:60,0.8"
    answer_len: str = "lognormal:150,0.6"
    mean_think_s: float = 10.0
    system_len: int = 0
    max_prompt_len: int | None = None

    def __post_init__(self) -> None:
        check_whole_number("num_sessions", self.num_sessions, 1)
        self._conversation()
        self.drawn_arrivals()

    def requests(self, seed: int) -> Iterable[WorkloadRequest]:
        """The turns of all conversations. Raises ``ConfigError``."""
        return sessions(self.num_sessions, self._conversation(), arrivals=self.drawn_arrivals(), seed=seed)

    def _conversation(self) -> Conversation:
        return Conversation(
            num_turns=parse_length("num_turns", self.num_turns),
            message_len=parse_length("message_len", self.message_len),
            answer_len=parse_length("answer_len", self.answer_len),
            mean_think_s=self.mean_think_s,
            system_len=self.system_len,
            max_prompt_len=self.max_prompt_len,
        )


@dataclass(frozen=True, kw_only=True)
class AgentsLoad(_AtRate):
    """Agents, as ``nanovllm workload make-agents`` makes them; ``rate`` counts agents. Raises ``ConfigError``."""

    num_agents: int
    num_calls: str = "uniform:3,10"
    task_len: str = "lognormal:300,0.8"
    answer_len: str = "lognormal:120,0.6"
    tool_output_len: str = "lognormal:400,1"
    mean_tool_s: float = 2.0
    system_len: int = 2000
    num_sub_agents: int = 0
    sub_system_len: int = 1000
    max_prompt_len: int | None = None

    def __post_init__(self) -> None:
        check_whole_number("num_agents", self.num_agents, 1)
        check_whole_number("num_sub_agents", self.num_sub_agents, 0)
        self._loop(self.system_len)
        self._loop(self.sub_system_len)
        self.drawn_arrivals()

    def requests(self, seed: int) -> Iterable[WorkloadRequest]:
        """The calls of all agents. Raises ``ConfigError``."""
        team = None
        if self.num_sub_agents:
            team = SubAgents(number=self.num_sub_agents, loop=self._loop(self.sub_system_len))
        loop = self._loop(self.system_len)
        return agents(self.num_agents, loop, sub_agents=team, arrivals=self.drawn_arrivals(), seed=seed)

    def _loop(self, system_len: int) -> ToolLoop:
        return ToolLoop(
            num_calls=parse_length("num_calls", self.num_calls),
            task_len=parse_length("task_len", self.task_len),
            answer_len=parse_length("answer_len", self.answer_len),
            tool_output_len=parse_length("tool_output_len", self.tool_output_len),
            mean_tool_s=self.mean_tool_s,
            system_len=system_len,
            max_prompt_len=self.max_prompt_len,
        )


def stretched(requests: list[WorkloadRequest], rate: float) -> list[WorkloadRequest]:
    """The requests with the first at 0 and the others' arrivals stretched so that ``rate`` come a second on average.
    Those that wait for others do not count, and keep their delays.

    Raises ``ConfigError`` where that is not possible: they come by step, or all at once.
    """
    times_s = [request.arrival or 0.0 for request in requests if not request.after]
    by_step = any(request.arrival_step is not None for request in requests)
    if by_step or not times_s or times_s[0] == times_s[-1]:
        raise ConfigError("rate", rate, "only for requests that arrive at different seconds")
    first_s, span_s, new_span_s = times_s[0], times_s[-1] - times_s[0], (len(times_s) - 1) / rate

    def moved(request: WorkloadRequest) -> WorkloadRequest:
        time_s = ((request.arrival or 0.0) - first_s) / span_s * new_span_s
        return msgspec.structs.replace(request, arrival=time_s)

    return [request if request.after else moved(request) for request in requests]
