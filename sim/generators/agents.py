"""Agents: loops in which a model asks for a tool, reads what it gives, and goes on; some delegate to others first.

Each call of the model is a request. Its prompt is that of the call before, what was answered to it, and what the tool
gave: prompts grow, and nearly all of each is known already.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from random import Random
from typing import NamedTuple

from nanovllm.checks import check_whole_number, is_number
from nanovllm.errors import ConfigError
from sim.generators.arrivals import Arrivals, at_once
from sim.generators.lengths import Length
from sim.token_ids import (
    DEFAULT_VOCAB_SIZE,
    MAX_DRAWN_TOKENS,
    answer_token_ids,
    draw_token_ids,
    own_token_ids,
    prefix_token_ids,
)
from sim.workload import WorkloadRequest, in_order_of_arrival


@dataclass(frozen=True, kw_only=True)
class ToolLoop:
    """What an agent does until its task is done. All lengths are in tokens. Raises ``ConfigError``."""

    num_calls: Length
    """How often the model is called; between one call and the next, a tool runs."""
    task_len: Length
    """What the agent is asked to do."""
    answer_len: Length
    """What the model says in a call: what it thinks, and which tool it wants."""
    tool_output_len: Length
    """What a tool gives back."""
    mean_tool_s: float
    """How long a tool takes, exponentially distributed; 0 for none at all."""
    system_len: int = 0
    """Tokens that all agents of this kind begin with: instructions, descriptions of the tools."""
    max_prompt_len: int | None = None
    """The loop ends before a prompt that would be longer."""

    def __post_init__(self) -> None:
        _check_seconds("mean_tool_s", self.mean_tool_s)
        check_whole_number("system_len", self.system_len, 0, MAX_DRAWN_TOKENS)
        if self.max_prompt_len is not None:
            check_whole_number("max_prompt_len", self.max_prompt_len, 1)


@dataclass(frozen=True, kw_only=True)
class SubAgents:
    """To whom an agent delegates: ``number`` sub-agents, which begin together when it has answered for the first time.
    When the last of them is done, it reads what each has said last, in place of what a tool gives. All sub-agents have
    one system prompt, another than that of the agents."""

    number: int
    loop: ToolLoop

    def __post_init__(self) -> None:
        check_whole_number("number", self.number, 1)


def agents(
    num_agents: int,
    loop: ToolLoop,
    *,
    sub_agents: SubAgents | None = None,
    arrivals: Arrivals | None = None,
    token_s: float = 0.02,
    seed: int = 0,
    vocab_size: int = DEFAULT_VOCAB_SIZE,
) -> list[WorkloadRequest]:
    """The calls of ``num_agents`` agents in order of arrival. Ids: ``3-0``, ``3-1`` ... for the calls of agent 3, and
    ``3-sub1-0`` ... for those of its second sub-agent.

    ``arrivals``: when agents begin, by default all at the start. Answers are what the simulator is going to generate,
    as for ``sessions``. Times are laid down beforehand, too: an answer is taken to need ``token_s`` for each of its
    tokens, whatever it is going to need; then the tool runs, then the next call comes. ``vocab_size``: as for
    ``sessions``.
    """
    check_whole_number("num_agents", num_agents, 1)
    _check_seconds("token_s", token_s)
    arrivals = at_once() if arrivals is None else arrivals
    calls: list[WorkloadRequest] = []
    for number, start in enumerate(islice(arrivals(Random(f"arrivals {seed}")), num_agents)):
        if start.arrival is None:
            raise ConfigError("arrivals", start, "arrivals in seconds: a call comes some time after the one before")
        serial = number * (1 + (0 if sub_agents is None else sub_agents.number))
        agent = _Agent(loop, str(number), "agent", serial, sub_agents)
        calls += agent.run(start.arrival, token_s, seed, vocab_size).calls
    if not calls:
        raise ConfigError("max_prompt_len", loop.max_prompt_len, "every agent begins with a longer prompt")
    return in_order_of_arrival(calls)


class _Done(NamedTuple):
    """What an agent leaves: its calls and those of its sub-agents, its last answer, and when it is through with it."""

    calls: list[WorkloadRequest]
    answer: list[int]
    end_s: float


class _Agent(NamedTuple):
    loop: ToolLoop
    name: str
    kind: str
    """Those of one kind have one system prompt."""
    serial: int
    """Another one for each agent and sub-agent."""
    sub_agents: SubAgents | None = None

    def run(self, start_s: float, token_s: float, seed: int, vocab_size: int) -> _Done:
        """Go through the loop, from ``start_s`` on."""
        loop, rng = self.loop, Random(f"{self.kind} {self.name} {seed}")
        said = prefix_token_ids(self.kind, loop.system_len, seed, vocab_size)
        said = said + own_token_ids(self.serial, loop.task_len(rng), seed, vocab_size)
        calls: list[WorkloadRequest] = []
        answer: list[int] = []
        time_s = answered_s = start_s
        for number in range(loop.num_calls(rng)):
            if loop.max_prompt_len is not None and len(said) > loop.max_prompt_len:
                break
            request_id, answer_len = f"{self.name}-{number}", loop.answer_len(rng)
            calls.append(
                WorkloadRequest(id=request_id, prompt=said, max_tokens=answer_len, ignore_eos=True, arrival=time_s)
            )
            answer = answer_token_ids(request_id, answer_len, vocab_size)
            answered_s = time_s + answer_len * token_s
            if number == 0 and self.sub_agents is not None:
                done = [agent.run(answered_s, token_s, seed, vocab_size) for agent in self._team(self.sub_agents)]
                calls += chain.from_iterable(sub_agent.calls for sub_agent in done)
                read = list(chain.from_iterable(sub_agent.answer for sub_agent in done))
                time_s = max(sub_agent.end_s for sub_agent in done)
            else:
                read = draw_token_ids(f"tool {seed} {self.name} {number}", loop.tool_output_len(rng), vocab_size)
                time_s = answered_s + (rng.expovariate(1 / loop.mean_tool_s) if loop.mean_tool_s else 0.0)
            said = said + answer + read
        return _Done(calls, answer, answered_s)

    def _team(self, sub_agents: SubAgents) -> list[_Agent]:
        return [
            _Agent(sub_agents.loop, f"{self.name}-sub{number}", "sub-agent", self.serial + 1 + number)
            for number in range(sub_agents.number)
        ]


def _check_seconds(name: str, value: float) -> None:
    if not is_number(value) or value < 0:
        raise ConfigError(name, value, "a number of seconds from 0 upward")
