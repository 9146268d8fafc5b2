"""Conversations: each turn's prompt is all that was said before, answers included, and something new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from nanovllm.checks import check_positive, check_whole_number
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
class Conversation:
    """What conversations look like. Raises ``ConfigError``."""

    num_turns: Length
    message_len: Length
    """What a user says in a turn."""
    answer_len: Length
    mean_gap_s: float
    """Between one turn and the next, exponentially distributed; whether the answer is there by then or not."""
    system_len: int = 0
    """Tokens that every conversation begins with."""
    max_prompt_len: int | None = None
    """A conversation ends before a prompt that would be longer."""

    def __post_init__(self) -> None:
        check_positive("mean_gap_s", self.mean_gap_s, "a number of seconds")
        check_whole_number("system_len", self.system_len, 0, MAX_DRAWN_TOKENS)
        if self.max_prompt_len is not None:
            check_whole_number("max_prompt_len", self.max_prompt_len, 1)


def sessions(
    num_sessions: int,
    conversation: Conversation,
    *,
    arrivals: Arrivals | None = None,
    seed: int = 0,
    vocab_size: int = DEFAULT_VOCAB_SIZE,
) -> list[WorkloadRequest]:
    """The turns of ``num_sessions`` conversations in order of arrival, with ids such as ``3-0``, ``3-1``.

    ``arrivals``: when conversations begin, by default all at the start. An answer is what the simulator is going to
    generate: known beforehand, being a function of the request's id, and always of the length drawn here
    (``ignore_eos``). So a prefix cache finds prompt and answer of the turn before; on a real engine, which answers
    otherwise, it finds the prompt. ``vocab_size``: the model's, where it is below ``DEFAULT_VOCAB_SIZE``.
    """
    check_whole_number("num_sessions", num_sessions, 1)
    arrivals = at_once() if arrivals is None else arrivals
    turns: list[WorkloadRequest] = []
    for number, start in enumerate(islice(arrivals(Random(f"arrivals {seed}")), num_sessions)):
        if start.arrival is None:
            raise ConfigError("arrivals", start, "arrivals in seconds: a turn comes some time after the one before")
        turns.extend(_turns(conversation, number, start.arrival, seed, vocab_size))
    if not turns:
        allowed = "every conversation begins with a longer prompt"
        raise ConfigError("max_prompt_len", conversation.max_prompt_len, allowed)
    return in_order_of_arrival(turns)


def _turns(
    conversation: Conversation, number: int, start_s: float, seed: int, vocab_size: int
) -> Iterator[WorkloadRequest]:
    rng = Random(f"session {number} {seed}")
    said = prefix_token_ids("system", conversation.system_len, seed, vocab_size)
    time_s = start_s
    for turn in range(conversation.num_turns(rng)):
        message_len, answer_len = conversation.message_len(rng), conversation.answer_len(rng)
        if turn == 0:
            said = said + own_token_ids(number, message_len, seed, vocab_size)
        else:
            said = said + draw_token_ids(f"message {seed} {number} {turn}", message_len, vocab_size)
        if conversation.max_prompt_len is not None and len(said) > conversation.max_prompt_len:
            return
        request_id = f"{number}-{turn}"
        yield WorkloadRequest(id=request_id, prompt=said, max_tokens=answer_len, ignore_eos=True, arrival=time_s)
        said = said + answer_token_ids(request_id, answer_len, vocab_size)
        time_s += rng.expovariate(1 / conversation.mean_gap_s)
