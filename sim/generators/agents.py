"""Agents: loops in which a model asks for a tool, reads what it gives, and goes on; some delegate to others first.

Each call of the model is a request. Its prompt is that of the call before, what was answered to it, and what the tool
gave: prompts grow, and nearly all of each is known already.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import NamedTuple

from nanovllm.checks import check_seconds, check_whole_number
from sim.generators.arrivals import Arrival, Arrivals
from sim.generators.lengths import Length
from sim.generators.turns import Thread, Turns, drawn_delay, in_threads
from sim.token_ids import DEFAULT_VOCAB_SIZE, draw_token_ids, own_token_ids, prefix_token_ids
from sim.workload import WorkloadRequest


@dataclass(frozen=True, kw_only=True)
class ToolLoop(Turns):
    """What an agent does until its task is done. Raises ``ConfigError``."""

    num_calls: Length
    """How often the model is called; between one call and the next, a tool runs."""
    task_len: Length
    """What the agent is asked to do."""
    tool_output_len: Length
    """What a tool gives back."""
    mean_tool_s: float
    """How long a tool takes, exponentially distributed; 0 for no time at all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds("mean_tool_s", self.mean_tool_s)


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
    seed: int = 0,
    vocab_size: int = DEFAULT_VOCAB_SIZE,
) -> list[WorkloadRequest]:
    """The calls of ``num_agents`` agents in order of arrival. Ids: ``3-0``, ``3-1`` ... for the calls of agent 3, and
    ``3-sub1-0`` ... for those of its second sub-agent. A tool begins when the call before it has been answered, and
    the next call comes when the tool, or the last sub-agent, is done.

    ``arrivals``: when agents begin, by default all at the start. Answers are what the simulator is going to generate,
    as for ``sessions``. ``vocab_size``: as for ``sessions``.
    """
    check_whole_number("num_agents", num_agents, 1)

    def make(number: int, start: Arrival) -> list[WorkloadRequest]:
        serial = number * (1 + (0 if sub_agents is None else sub_agents.number))
        return _Agent(loop, str(number), "agent", serial, sub_agents).run(start, seed, vocab_size).requests

    return in_threads(num_agents, loop, make, arrivals, seed)


class _Agent(NamedTuple):
    loop: ToolLoop
    name: str
    kind: str
    """Those of one kind have one system prompt."""
    serial: int
    """Another one for each agent and sub-agent."""
    sub_agents: SubAgents | None = None

    def run(self, start: Arrival, seed: int, vocab_size: int) -> Thread:
        """Go through the loop. Among the requests are those of the sub-agents."""
        loop, rng = self.loop, Random(f"{self.kind} {self.name} {seed}")
        thread = Thread(self.name, loop.max_prompt_len, vocab_size)
        system = prefix_token_ids(self.kind, loop.system_len, seed, vocab_size)
        read, arrival = system + own_token_ids(self.serial, loop.task_len(rng), seed, vocab_size), start
        for number in range(loop.num_calls(rng)):
            call = thread.take_turn(read, loop.answer_len(rng), arrival)
            if call is None:
                break
            if number == 0 and self.sub_agents is not None:
                team = self._delegate(self.sub_agents, call, seed, vocab_size)
                thread.requests += chain.from_iterable(other.requests for other in team)
                read = list(chain.from_iterable(other.answer for other in team))
                lasts = tuple(other.last_id for other in team if other.last_id is not None)
                arrival = Arrival(after=lasts or (call,))
            else:
                read = draw_token_ids(f"tool {seed} {self.name} {number}", loop.tool_output_len(rng), vocab_size)
                arrival = Arrival(after=(call,), delay=drawn_delay(rng, loop.mean_tool_s))
        return thread

    def _delegate(self, sub_agents: SubAgents, call: str, seed: int, vocab_size: int) -> list[Thread]:
        begin = Arrival(after=(call,))
        team = [
            _Agent(sub_agents.loop, f"{self.name}-sub{number}", "sub-agent", self.serial + 1 + number)
            for number in range(sub_agents.number)
        ]
        return [agent.run(begin, seed, vocab_size) for agent in team]
